"""The sensors job."""
