"""The programs that wrote the corpus; README.md says with which versions."""
