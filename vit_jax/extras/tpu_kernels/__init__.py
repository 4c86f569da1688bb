"""Attention kernels for TPUs: `model.attention=splash` or `auto`."""
