"""Backbones of today: their model, and weights of other codebases."""
