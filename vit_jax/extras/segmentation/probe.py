"""Semantic segmentation with a linear probe on frozen patch features.

Follows the linear evaluation of DINOv2 (arXiv 2304.07193, section 7.4), with a
closed-form ridge regression instead of SGD. It maps the token of a patch to the
fraction of each class in up to 4 x 4 cells of the patch, which minimises the
squared error of the one-hot labels of all pixels. Scores are interpolated
bilinearly from cells to pixels. Labels have the size of the preprocessed image.
"""

import dataclasses
from typing import ClassVar, Literal

import einops
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8
import numpy as np

from vit_jax import data
from vit_jax import fields
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.extras.segmentation import mask_reader
from vit_jax.extras.segmentation import pixels
from vit_jax.parallel import multihost

VALUES = pixels.VALUES
EPSILON = 1e-5  # Keeps constant features finite.

# Weights [width, cells, cells, classes], bias [cells, cells, classes] and the
# values of the classes [classes].
Probe = tuple[jax.Array, jax.Array, jax.Array]


@dataclasses.dataclass(frozen=True)
class SegmentationConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'segmentation'`.

  Attributes:
    train_split: images that the probe is fitted to; must not overlap with
      `split`. Each evaluation reads all of them.
    penalty: weight of the L2 penalty, relative to the mean squared error;
      features are standardised.
    ignored: value of pixels without a class, besides 255, which also marks
      padding.
    classes: names of the classes, from value 0; by default those of the
      objective, if it has any.
  """
  name: Literal['segmentation'] = 'segmentation'
  train_split: str = 'train'
  penalty: float = 1e-3
  ignored: int = mask_reader.IGNORED
  classes: tuple[str, ...] = ()

  uses_head: ClassVar[bool] = False
  fit_field: ClassVar[str] = 'train_split'
  uses_labels: ClassVar[bool] = False

  def __post_init__(self):
    fields.check_range(self, 'penalty', above=0)
    if self.flip:
      raise ValueError('segmentation does not support flip. Remove it.')

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return pixels.METRICS

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    test = context.open(self, relabel=mask_reader.with_masks)
    train = context.open(
        dataclasses.replace(self, split=self.train_split),
        relabel=mask_reader.with_masks)
    rows, columns = context.grid
    ignored, names = self._of_masks(context, test.dataset)

    def labels(batch: types.Batch) -> jax.Array:
      found = batch['segmentation']
      return jnp.where(found == ignored, jnp.uint8(mask_reader.IGNORED), found)

    def tokens(params: types.Params, batch: types.Batch) -> jax.Array:
      found = context.predict(params, batch)['tokens'].astype(jnp.float32)
      return einops.rearrange(
          found[:, -rows * columns:], 'b (r c) w -> b r c w', r=rows)

    def train_moments(params: types.Params, batch: types.Batch) -> jax.Array:
      return moments(tokens(params, batch), labels(batch), batch['mask'])

    @jax.jit
    def labels_and_predictions(
        params: tuple[types.Params, Probe], batch: types.Batch,
    ) -> jax.Array:
      known = labels(batch)
      height, width = known.shape[1:]
      found = predict(params[1], tokens(params[0], batch), (height, width))
      return jnp.stack([known, found], axis=1)

    def count(
        params: tuple[types.Params, Probe], batch: types.Batch,
    ) -> tuple[jax.Array, jax.Array]:
      pairs = labels_and_predictions(params, batch)
      counted = (pairs[:, 0] != mask_reader.IGNORED) & (
          batch['mask'][:, None, None] > 0)
      return jnp.zeros((VALUES, VALUES), jnp.int32).at[
          pairs[:, 0], pairs[:, 1]].add(counted).astype(
              jnp.float32), batch['mask'].sum()

    of_train = passes.total(train, train_moments)
    of_test = passes.total(test, count)

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      probe = fit(of_train(params, on_batch), penalty=self.penalty,
                  where=f'{context.where}: {train.dataset.title}')
      counts, examples = of_test((params, probe), on_batch)
      batch = next(test.batches())
      pairs, mask = multihost.fetch((
          labels_and_predictions((params, probe), batch), batch['mask']))
      drawn = np.flatnonzero(mask)[:pixels.NUM_DRAWN].tolist()
      pairs = pairs[drawn, ..., None].astype(np.uint8)
      return pixels.result(
          counts, int(examples), names=names, split=test.dataset.title,
          images=lambda: [
              *map(test.image, drawn), *pairs[:, 0], *pairs[:, 1]])

    return run

  def _of_masks(
      self, context: evaluator.Context, dataset: data.Dataset,
  ) -> tuple[int, tuple[str, ...]]:
    """Returns the value of pixels without a class, and the class names.

    Masks whose classes are those of the objective have `IGNORED` for it.
    """
    stored = dataset.ignored
    if stored is None:
      return self.ignored, self.classes
    if self.ignored not in (stored, mask_reader.IGNORED):
      raise ValueError(
          f'{context.where}.ignored is {self.ignored}, but that of the '
          f'objective is {stored}. Leave it out.')
    return mask_reader.IGNORED, self.classes or dataset.class_names or ()


def moments(
    tokens: Float[Array, 'batch rows columns width'],
    labels: UInt8[Array, 'batch height image_width'],
    mask: Float[Array, 'batch'],
) -> Float[Array, 'width_and_1 width_1_and_targets']:
  """Returns the sum over patches of [x, 1]^T [x, 1, y].

  x is the token of a patch, and y the fraction of each value in its cells,
  flattened from [cells, cells, values].
  """
  rows, columns = tokens.shape[1:3]
  height, width = labels.shape[1:]
  cells = next((n for n in (4, 3, 2, 1) if not (
      height % (rows * n) or width % (columns * n))), None)
  if cells is None:
    raise ValueError(
        f'Masks of {height} x {width} pixels do not divide into the '
        f'{rows} x {columns} patches of the model. Choose another '
        'data.resolution.')
  pixels = einops.rearrange(
      labels, 'b (r i y) (c j x) -> b r c (i j) (y x)', r=rows, c=columns,
      i=cells, j=cells)
  # XLA fuses the comparison into the mean.
  shares = (pixels[..., None] == jnp.arange(VALUES)).mean(axis=-2)
  # Padding may be NaN, and NaN times a mask of 0 is NaN.
  left = jnp.where(mask[:, None, None, None] > 0, jnp.concatenate(
      [tokens, jnp.ones_like(tokens[..., :1])], axis=-1), 0)
  right = jnp.concatenate(
      [left, einops.rearrange(shares, 'b r c p v -> b r c (p v)')], axis=-1)
  return jnp.einsum('brci,brcj->ij', left, right,
                    precision=jax.lax.Precision.HIGHEST)


def fit(
    moments: Float[np.ndarray, 'width_and_1 width_1_and_targets'], *,
    penalty: float, where: str,
) -> Probe:
  """Returns the ridge regression for the sum of `moments`.

    w = (C_xx + penalty)^-1 C_xy,  b = E[y] - E[x] w

  with the covariances C of standardised features. Pixels without a class are
  fitted as a class that is never predicted. `where` is for messages.
  """
  width = len(moments) - 1
  mean = moments.astype(np.float64) / moments[width, width]
  if not np.isfinite(mean).all():
    raise ValueError(f'{where} has an image whose tokens are NaN or infinite.')
  x, shares = mean[width, :width], mean[:, width + 1:].reshape(
      width + 1, -1, VALUES)
  classes = np.flatnonzero(shares[width].any(axis=0))
  classes = classes[classes != mask_reader.IGNORED]
  if not len(classes):
    raise ValueError(f'No pixel of {where} has a class.')
  y = shares[..., classes].reshape(width + 1, -1)
  cells = round(shares.shape[1]**0.5)
  covariance = mean[:width, :width] - np.outer(x, x)
  std = np.sqrt(np.diag(covariance).clip(0)) + EPSILON
  weights = np.linalg.solve(
      covariance / np.outer(std, std) + penalty * np.eye(width),
      (y[:width] - np.outer(x, y[width])) / std[:, None]) / std[:, None]
  weights, bias = (jnp.asarray(array, jnp.float32).reshape(
      *array.shape[:-1], cells, cells, len(classes))
                   for array in (weights, y[width] - x @ weights))
  return weights, bias, jnp.asarray(classes)


def predict(
    probe: Probe, tokens: Float[Array, 'batch rows columns width'],
    size: tuple[int, int],
) -> Int[Array, 'batch height image_width']:
  """Returns the class of each pixel of images of size (height, width)."""
  weights, bias, classes = probe
  scores = bias + jnp.einsum(
      'brcw,wijk->brcijk', tokens, weights,
      precision=jax.lax.Precision.HIGHEST)
  scores = einops.rearrange(scores, 'b r c i j k -> b (r i) (c j) k')
  scores = jax.image.resize(
      scores, (len(tokens), *size, len(classes)), 'linear')
  return classes[scores.argmax(axis=-1)]
