"""Families of weights: names, layouts, sizes, and how they are recognised."""
