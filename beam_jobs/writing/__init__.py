"""The steps that write a dataset, as functions that know no Beam, and `write`, which calls them one after another."""
