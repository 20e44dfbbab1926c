"""Small faults at random lines of the code, each of which a base test should notice."""
