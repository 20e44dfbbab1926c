"""The command line: flags become a checked command, and its result is printed."""
