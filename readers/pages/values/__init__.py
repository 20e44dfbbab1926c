"""How the values of a feature are distributed: figures, and histograms."""
