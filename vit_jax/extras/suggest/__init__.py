"""Suggests settings for data that do not follow the conventions."""
