"""Where records are: plans, indexes, byte ranges, the cache."""
