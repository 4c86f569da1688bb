"""Experiments: typed configs, and the data, model and step built from them."""
