"""Azure Blob Storage, through Microsoft's own library."""
