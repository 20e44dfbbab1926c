"""The policy for retries of requests to a store, for those who write: the one of `readers.files`."""

from readers.files.backoff import TRIES, may_pass, tries, wait_limits

__all__ = ["TRIES", "may_pass", "tries", "wait_limits"]
