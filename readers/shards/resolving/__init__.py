"""The plans of datasets with a manifest, of some of their records, and of bare TFRecord files."""
