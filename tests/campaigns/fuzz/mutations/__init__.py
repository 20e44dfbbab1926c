"""Mutations that keep a structure: messages, JSON, frames with checksums, archives, PNGs."""
