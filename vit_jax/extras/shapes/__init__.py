"""Drawn shapes: a labelled dataset of any size that needs no files."""
