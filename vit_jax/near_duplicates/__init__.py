"""Near-duplicates of test images in training data."""
