"""The images job."""
