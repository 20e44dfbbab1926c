"""Encoding of records into serialized Examples: which values fit a schema, and their bytes."""
