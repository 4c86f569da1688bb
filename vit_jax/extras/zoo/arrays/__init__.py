"""Arrays of files: their family, their layout, and the model they belong to."""
