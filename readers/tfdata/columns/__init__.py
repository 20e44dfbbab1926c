"""Columns of parsed records as tensors."""
