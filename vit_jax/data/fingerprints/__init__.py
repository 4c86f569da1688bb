"""Perceptual hashes and the search for near-duplicates by them."""
