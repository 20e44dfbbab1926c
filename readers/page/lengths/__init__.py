"""What the lengths of records cost in batches, and the arguments with which it is less."""
