"""Formats of recordings, one file each; `registry` finds the format of a file."""
