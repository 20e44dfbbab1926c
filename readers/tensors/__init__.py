"""Batches as tensors of PyTorch and as arrays of JAX."""
