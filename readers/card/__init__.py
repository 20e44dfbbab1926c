"""`python -m readers card`: files that describe a dataset to people and to other tools, from its manifest alone."""
