"""Settings of the source 'shapes', which a leaf draws (`registry.SOURCES`)."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class ShapesConfig:
  """The section `data.shapes`.

  Attributes:
    num_examples: images in the split `train`.
    num_test_examples: images in the split `test`.
    label: 'multi' is two strokes, colour and texture; 'single' is one stroke.
    ink: fraction of images in grey on a plain background.
    bright: only bright strokes on dark, which small ViTs learn much faster.
    seed: selects the dataset.
  """
  num_examples: int = 100_000
  num_test_examples: int = 2_000
  label: Literal['multi', 'single'] = 'multi'
  ink: float = 0.5
  bright: bool = False
  seed: int = 0

  def __post_init__(self):
    if (min(self.num_examples, self.num_test_examples, self.seed + 1) < 1
        or not 0 <= self.ink <= 1):
      raise ValueError('Numbers of examples must be positive, seed at least 0, '
                       f'and ink in [0, 1]; got {self}.')
