"""Figures of models and predictions, as images and HTML pages."""
