"""Records as HTML that can be looked at: small pictures, lines of signals, and texts."""
