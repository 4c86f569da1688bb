"""Vision Transformer in JAX: "An Image is Worth 16x16 Words", arXiv:2010.11929.

Pre-training, fine-tuning and evaluation of the paper's models. Start with
`python main.py --help`; CONTRIBUTING.md says where things are.

    model = vit_jax.load('ViT-B_16.npz')   # Or a run, a folder, hf://...
    logits = model(images)['logits']
"""

import os
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
  from vit_jax.model import Model

__version__ = '0.1.0'


def load(path: str | os.PathLike, **overrides: Any) -> 'Model':
  """Loads a model with its weights: see `vit_jax.model.load`."""
  # Not at the top: whoever wants a part alone need not wait for Orbax.
  from vit_jax import model
  return model.load(path, **overrides)
