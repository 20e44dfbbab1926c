"""What may be wrong with the data of a dataset: each check looks at a sample and the manifest's counts."""
