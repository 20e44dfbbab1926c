"""The first half of a pipeline: finds the records, and plans the shard and the place of each."""
