"""The shards of a plan on this machine and in stores: their bytes, and the numbers in their indexes."""
