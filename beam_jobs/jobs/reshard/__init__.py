"""The reshard job."""
