"""Digests of pictures, texts and recordings that near duplicates share, and pairs and groups of them."""
