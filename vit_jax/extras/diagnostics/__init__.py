"""Evaluators that look closer at the predictions of a classifier."""
