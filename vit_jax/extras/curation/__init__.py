"""Curation of datasets: problems, near-duplicates, and prepared shards."""
