"""Weights of other codebases: import, export, architecture inference."""
