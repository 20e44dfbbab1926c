"""Coverage-guided fuzzing of every function that takes foreign bytes; README.md says how to run it."""
