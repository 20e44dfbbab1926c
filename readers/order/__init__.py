"""Which record comes when, computed by pure functions. A place is a position in the order of an epoch, from 0 on."""
