"""The Beam graphs."""
