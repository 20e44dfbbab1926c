"""Where bytes are kept: local disks, S3, Google Cloud Storage, Beam's filesystems."""
