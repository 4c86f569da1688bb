"""Distillation from frozen teachers; see docs/distillation.md.

  distill   predictions of a teacher with the classes of the data
  features  features of teachers, without labels
  teachers  what teachers see, and their parameters

`registry.OBJECTIVES` lists the first two.
"""
