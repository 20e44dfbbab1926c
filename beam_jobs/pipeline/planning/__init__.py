"""The first half of a pipeline: which records there are, and the shard and the place of each."""
