"""Adafactor and schedule-free AdamW: `optimizer.name`."""
