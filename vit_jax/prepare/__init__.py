"""Writes any dataset as ArrayRecord shards in the format of TFDS."""
