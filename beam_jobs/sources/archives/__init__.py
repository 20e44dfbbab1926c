"""Members of .zip, .tar and .tar.gz files, read where they are."""
