"""Finds examples to leave out: near-duplicates of what a model is tested on."""
