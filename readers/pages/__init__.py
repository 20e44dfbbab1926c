"""The report on a dataset: one HTML file without scripts and without outside resources."""
