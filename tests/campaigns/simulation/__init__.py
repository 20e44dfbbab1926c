"""Jobs on a simulated runner and store, in which everything that may go wrong does, from one seed."""
