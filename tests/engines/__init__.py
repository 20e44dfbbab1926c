"""Real engines on one machine, for tests and for trying a job on a cluster."""
