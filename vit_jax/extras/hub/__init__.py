"""Weights of the Hugging Face hub."""
