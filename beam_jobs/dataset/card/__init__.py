"""The card of a dataset: files that describe it to people and to other tools, from its manifest alone."""
