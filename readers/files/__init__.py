"""Bytes of files on any filesystem."""
