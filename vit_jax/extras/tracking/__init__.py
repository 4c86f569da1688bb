"""Metrics in TensorBoard, and in Weights & Biases (`log.wandb`)."""
