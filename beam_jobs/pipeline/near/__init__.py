"""Steps that find near duplicates among all records, and those that drop them."""
