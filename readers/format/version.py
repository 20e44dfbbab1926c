"""The version of the distribution, which both packages have."""

__version__ = "0.1.0"
