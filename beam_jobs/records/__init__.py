"""Encodes features into framed bytes, collects records in blocks, and keeps exact statistics."""
