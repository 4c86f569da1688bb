"""Devices as a mesh, and how arrays are split over it."""
