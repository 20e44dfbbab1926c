"""Storage: local disks, S3, Google Cloud Storage, Azure, and Beam's filesystems."""
