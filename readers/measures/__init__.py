"""Numbers that describe each record of a sample: pictures, texts, signals and other values."""
