"""Reading records of numbers with a small compiled library, which an installation may lack."""
