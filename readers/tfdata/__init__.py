"""Batches as a `tf.data.Dataset`; this package and `transforms.tftensors` import TensorFlow."""
