"""Real engines and object stores on one machine, for tests and for trying a job on a cluster."""
