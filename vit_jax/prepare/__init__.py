"""Writes any data set as TFDS would have: shards of ArrayRecord."""
