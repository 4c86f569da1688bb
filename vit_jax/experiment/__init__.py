"""Experiments: typed configs, and their wiring to data, model and devices."""
