"""A record as a card of HTML: its pictures, lines and texts, and a line for each other feature."""
