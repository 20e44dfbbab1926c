"""Near duplicates and checks, as flags ask for them."""
