"""`python -m readers card`: describes a dataset to people and to other tools, using only its manifest."""
