"""What is wrong with a data set: read once, nothing changed."""
