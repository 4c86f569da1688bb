"""Augmentation that the paper of ViT does not use; see docs/augmentation.md.

`registry.OPERATIONS` lists these operations for `data.train_ops`, and
`registry.MIXERS` those for batches.

  randaugment   RandAugment and TrivialAugment
  colour        colour jitter, grey, blur, random erasing
  mixing        mixup and CutMix
"""
