"""Members of .zip, .tar and .tar.gz files, read in place."""
