"""The plans of datasets with a manifest, and of bare TFRecord files."""
