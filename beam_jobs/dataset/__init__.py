"""The directory that is being written: shards, notes, balance, reconciliation."""
