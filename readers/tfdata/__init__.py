"""Batches as a `tf.data.Dataset`: this package and `readers.transforms` import TensorFlow."""
