"""Transforms of TensorFlow's tensors; everything that they need of TensorFlow is here."""
