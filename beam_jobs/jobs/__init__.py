"""What a record is: images, text, sensors, and records of existing TFRecord files."""
