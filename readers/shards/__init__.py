"""Where records are stored and how their bytes are read: plans, indexes, ranges, the cache."""
