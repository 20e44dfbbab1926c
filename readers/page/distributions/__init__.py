"""How the values of a feature are distributed: figures, histograms and the most frequent values."""
