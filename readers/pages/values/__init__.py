"""How the values of a feature are distributed: what is kept of a sample, figures, histograms, frequent values."""
