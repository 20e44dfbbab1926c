"""Random histories of commands on datasets that live, compared with a model in plain Python."""
