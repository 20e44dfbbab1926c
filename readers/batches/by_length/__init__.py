"""Buckets and packed rows: which records share a batch follows from their lengths."""
