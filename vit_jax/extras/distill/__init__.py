"""Distillation from a frozen teacher; see docs/distillation.md.

`registry.OBJECTIVES` lists `distill.DistillConfig`.
"""
