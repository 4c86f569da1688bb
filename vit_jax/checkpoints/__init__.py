"""Orbax checkpoints of a run and their locations."""
