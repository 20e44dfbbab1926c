"""The command line: parses and checks flags, runs the command, and prints its result."""
