"""Batches as a `tf.data.Dataset`: the only package that imports TensorFlow, beside `readers.transforms`."""
