"""Decoding of untrusted image files."""
