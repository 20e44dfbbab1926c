"""Batches as a `tf.data.Dataset`; this package and `transforms.tensors` import TensorFlow."""
