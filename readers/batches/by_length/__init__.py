"""Buckets and packed rows: the lengths of records determine which of them share a batch."""
