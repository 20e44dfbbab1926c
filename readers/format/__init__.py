"""The format on disk, shared by the jobs that write it and the readers."""
