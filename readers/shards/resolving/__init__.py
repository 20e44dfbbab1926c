"""The plans of the two kinds of inputs: datasets with a manifest, and bare TFRecord files."""
