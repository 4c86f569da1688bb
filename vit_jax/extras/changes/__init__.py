"""Changes of the examples of a run since its checkpoint."""
