"""The version of the distribution, shared by both packages."""

__version__ = "0.1.0"
