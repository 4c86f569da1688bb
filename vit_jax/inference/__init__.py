"""Trained models ready to use: load, predict, features, export."""
