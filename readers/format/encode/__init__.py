"""Encoding of records into serialized Examples: which values fit a schema, and their bytes."""

from readers.format.encode.records import Encoder

__all__ = ["Encoder"]
