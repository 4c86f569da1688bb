"""Figures and statistics of models, predictions and runs."""
