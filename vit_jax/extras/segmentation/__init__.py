"""Semantic segmentation: the decoder, its objective, evaluators and masks."""
