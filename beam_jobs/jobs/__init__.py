"""The jobs, which define records: of images, text, sensors, and existing TFRecord files."""
