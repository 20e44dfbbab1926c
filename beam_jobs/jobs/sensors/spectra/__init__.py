"""Spectrograms and mel bands."""
