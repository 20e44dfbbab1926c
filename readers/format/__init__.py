"""The format on disk, shared by the jobs that write it and the readers, and the version of the distribution."""

__version__ = "0.1.0"
