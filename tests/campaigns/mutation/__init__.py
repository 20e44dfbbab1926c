"""Faults that are put into the code one at a time, each of which a test must notice.

    .venv/bin/python -m tests.campaigns mutation                      # all targets
    .venv/bin/python -m tests.campaigns mutation framing plan         # some
    .venv/bin/python -m tests.campaigns mutation --log faults.tsv     # with a line for every mutant

README.md has the rules.
"""
