"""The commands that change a complete dataset, each in one file: its flags, and what it does."""
