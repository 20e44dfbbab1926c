"""Finds records by the numbers in their indexes, without reading a record."""
