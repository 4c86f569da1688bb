"""What is kept of a run, and how another run starts from it."""
