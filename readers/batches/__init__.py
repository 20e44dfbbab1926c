"""Records -> batches of NumPy arrays, in any order, from any step, on any host."""
