"""The sources of records: files, archives, tables and labels."""
