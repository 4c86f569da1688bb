"""A data set that is drawn: any number of images, of any size, no download.

Each image holds one main shape and perhaps smaller ones, on a background. Most
kinds of shape are strokes (lines, arcs, hooks, junctions, loops, spirals):
telling them apart takes the geometry of strokes, which is also what
handwriting is made of, so a model pre-trained here has something to transfer.
Half of the images are ink (grey levels, plain ground, at times drawn coarsely
and enlarged, as small scans are); half are coloured and textured.

Stacked, an image holds two strokes instead, one joined above the other, with a
label for each and its place: what a small model learns from in minutes, since
its labels are dense and tell what is where.

An image is a pure function of (seed, index): nothing is stored.

  shapes         the section, the labels, the splits
  shape_drawing  one image
  shape_masks    which pixels a shape covers
  shape_looks    colours and textures
  shape_kinds    the kinds of shape, as points
"""

import dataclasses
from typing import Any, Literal

from vit_jax.data.sources import shape_drawing
from vit_jax.data.sources import shape_kinds
from vit_jax.data.sources import shape_looks

# Indices of the test split start here: the splits never share an image.
_TEST_OFFSET = 2**48


@dataclasses.dataclass(frozen=True)
class ShapesConfig:
  """The section `data.shapes`.

  Attributes:
    num_examples: images in the split `train`.
    num_test_examples: images in the split `test`.
    label: 'multi' for a list of the kinds, colours and textures that
      are present; 'single' for the kind of the main shape.
    arrangement: 'scattered', a main shape with others beside it, or 'stacked',
      a stroke above another; the latter's label is 'multi'.
    max_others: smaller shapes beside the main one, at most.
    ink: share of the images without colour and texture.
    bright: always bright on dark. Where either may be the darker, no patch
      says anything by itself, and a small ViT is long in getting started.
    size: of the drawn image, one side or (height, width); default: the
      section's resolution.
    seed: of the drawing; another seed is another data set.
  """
  num_examples: int = 100_000
  num_test_examples: int = 2_000
  label: Literal['multi', 'single'] = 'multi'
  arrangement: shape_drawing.Arrangement = 'scattered'
  max_others: int = 2
  ink: float = 0.5
  bright: bool = False
  size: int | tuple[int, int] | None = None
  seed: int = 0

  def __post_init__(self):
    if min(self.num_examples, self.num_test_examples) < 1:
      raise ValueError(
          'num_examples and num_test_examples must be positive; got '
          f'{self.num_examples} and {self.num_test_examples}.')
    if self.max_others < 0:
      raise ValueError(f'max_others cannot be negative; got {self.max_others}.')
    if not 0 <= self.ink <= 1:
      raise ValueError(f'ink is a share in [0, 1]; got {self.ink}.')
    if self.arrangement == 'stacked' and self.label == 'single':
      raise ValueError(
          "The two strokes of arrangement 'stacked' have no single label. Use "
          "label 'multi', or arrangement 'scattered'.")
    if self.seed < 0:
      raise ValueError(f'seed cannot be negative; got {self.seed}.')


def _with_looks(kinds: tuple[str, ...]) -> tuple[str, ...]:
  return (*kinds, *(f'{name} shape' for name in shape_looks.COLOURS),
          *(f'{name} background' for name in shape_looks.TEXTURES))


CLASS_NAMES = _with_looks(shape_kinds.KINDS)
STACKED_CLASS_NAMES = _with_looks(shape_kinds.STACKED_KINDS)


def class_names(config: ShapesConfig) -> tuple[str, ...]:
  """Returns the names of the classes that the section's labels tell."""
  if config.label == 'single':
    return shape_kinds.KINDS
  return CLASS_NAMES if config.arrangement == 'scattered' else (
      STACKED_CLASS_NAMES)


@dataclasses.dataclass(frozen=True)
class Shapes:
  """The split as a source: `self[i]` draws example i.

  Attributes:
    config: the section.
    size: height and width of the images.
    length: number of examples.
    offset: index of the first in the numbering of the drawing.
  """
  config: ShapesConfig
  size: tuple[int, int]
  length: int
  offset: int

  def __len__(self) -> int:
    return self.length

  def __getitem__(self, index: int) -> dict[str, Any]:
    config = self.config
    drawn = shape_drawing.draw(
        config.seed, self.offset + index, size=self.size,
        arrangement=config.arrangement, max_others=config.max_others,
        ink=config.ink, bright=config.bright)
    return {'image': drawn.image, 'label': _label(config, drawn)}

  def label(self, index: int) -> Any:
    return self[index]['label']

  def key(self, index: int) -> str:
    return f'drawing {self.offset + index} of seed {self.config.seed}'

  @property
  def numbering(self) -> tuple[str, int]:
    return f'drawing of seed {self.config.seed}', self.offset


def splits(config: ShapesConfig, *, size: tuple[int, int]) -> dict[str, Shapes]:
  """Returns the sources by split."""
  return {
      'train': Shapes(config, size, config.num_examples, 0),
      'test': Shapes(config, size, config.num_test_examples, _TEST_OFFSET)}


def _label(
    config: ShapesConfig, drawn: shape_drawing.Drawing,
) -> int | list[int]:
  """Returns a drawing's label: one entry of `class_names`, or all of them."""
  if config.label == 'single':
    return drawn.kinds[0]
  first_texture = len(class_names(config)) - len(shape_looks.TEXTURES)
  first_colour = first_texture - len(shape_looks.COLOURS)
  return sorted({*drawn.kinds, first_colour + drawn.colour,
                 first_texture + drawn.texture})
