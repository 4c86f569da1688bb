"""Parsers of compiled XLA programs."""
