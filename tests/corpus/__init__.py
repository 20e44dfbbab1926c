"""Datasets and TFRecord files whose bytes are kept, so that every later version is held to them."""
