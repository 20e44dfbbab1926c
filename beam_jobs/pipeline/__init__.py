"""The Beam graphs: which step hands what to which."""
