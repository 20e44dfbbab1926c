"""The text job."""
