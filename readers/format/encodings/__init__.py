"""Encodings: how an Example stores the values of a feature. Each is an object; `table` has all of them."""
