"""`beam-shards card`: describes a dataset to people and to other tools, using only its manifest."""
