"""Decoding of serialized Examples into arrays, one by one or a batch at a time."""
