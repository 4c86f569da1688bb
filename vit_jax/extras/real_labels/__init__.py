"""Reassessed labels of ImageNet; `registry.REAL_LABELS` names the module."""
