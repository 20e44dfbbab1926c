"""Targets, one module for each family of formats; `fuzz.registry` lists them."""
