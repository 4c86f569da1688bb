"""Map-style data sources: TFDS, class folders, tables, built-in sets."""
