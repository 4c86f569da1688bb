"""Selections of examples: split strings, subsets, exclusion lists."""
