"""LeJEPA, an objective that compares views; see docs/self_supervised.md.

  lejepa            the loss, which `registry.OBJECTIVES` lists
  views             random crops and colours, drawn on the device
  joint_embedding   a ViT with a projector
"""
