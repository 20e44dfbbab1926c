"""What tables of all formats share: their text, their cells, and which columns are channels."""
