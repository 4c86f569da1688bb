"""Weights of other codebases: their files, their names, their layouts."""
