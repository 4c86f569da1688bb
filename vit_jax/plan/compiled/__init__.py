"""Readers of compiled XLA programs."""
