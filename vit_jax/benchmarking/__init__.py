"""How fast parts of the codebase are, and others that do the same."""
