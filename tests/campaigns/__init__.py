"""Campaigns of many random cases, which run for hours; `python -m tests.campaigns` lists them."""
