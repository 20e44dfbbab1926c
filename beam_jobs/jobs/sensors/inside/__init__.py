"""What a recording file states itself: labels, metadata, and the records it holds."""
