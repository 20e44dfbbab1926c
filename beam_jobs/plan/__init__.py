"""The split and shard of each record: pure numbers."""
