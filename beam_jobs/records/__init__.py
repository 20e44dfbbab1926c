"""From features to framed bytes, blocks of records, and exact statistics."""
