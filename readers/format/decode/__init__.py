"""Serialized Examples -> arrays, one at a time or a batch at once."""
