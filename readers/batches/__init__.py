"""Records -> batches of NumPy arrays."""
