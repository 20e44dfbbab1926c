"""Jobs and readers that run for hours against a faulty store, and the memory that they hold meanwhile."""
