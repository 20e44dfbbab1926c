"""The flags of the sensors job."""
