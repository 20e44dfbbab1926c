"""Faults that are put into the code one at a time, each of which a test must notice.

    .venv/bin/python -m tests.mutation                      # all targets
    .venv/bin/python -m tests.mutation framing plan         # some
    .venv/bin/python -m tests.mutation --log faults.tsv     # with a line for every mutant

README.md has the rules.
"""
