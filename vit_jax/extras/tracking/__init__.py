"""Weights & Biases: `log.wandb`."""
