"""Reading records with a small compiled library."""
