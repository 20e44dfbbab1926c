"""Where work runs: Beam's runners, and our own processes."""
