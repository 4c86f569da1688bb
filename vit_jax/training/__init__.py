"""The training step, its cost, and what a run writes about itself."""
