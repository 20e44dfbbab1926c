"""Beam's runners, and our own processes, on which jobs run."""
