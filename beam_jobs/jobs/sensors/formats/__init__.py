"""Formats of recordings, one file each; `registry` finds the one of a file."""
