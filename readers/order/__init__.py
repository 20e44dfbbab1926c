"""Which record comes when: pure functions."""
