"""Trained models for inference: load, predict, features, attention, export."""
