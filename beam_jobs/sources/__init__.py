"""Where records come from: files, archives, tables and labels."""
