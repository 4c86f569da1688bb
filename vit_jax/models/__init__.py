"""Models: linen modules built from section `model` of a config.

A module maps preprocessed images to named outputs, and names the axes of its
parameters; `parallel.sharding` maps these to mesh axes. Start with `vit.py`.
`factory` parses, builds and initialises a model of any kind.
"""
