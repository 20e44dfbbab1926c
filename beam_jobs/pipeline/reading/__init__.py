"""Steps from patterns to the tasks that read their records."""
