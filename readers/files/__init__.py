"""Reading files from any filesystem: local disks, memory maps, object stores."""
