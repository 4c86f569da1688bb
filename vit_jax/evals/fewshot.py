"""Few-shot linear accuracy, in closed form (ViT, section 4.1).

A ridge regression from the representations of a few images of each class to
targets in {-1, 1}. As in its ancestor, big_vision's `fewshot_lsr`, "whitened"
means that each feature is standardised by the mean and deviation of the few
images, and the bias is a column of 100s among the features: so large that its
weight is hardly penalised, though formally it is, as all others.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Literal

import jax
from jaxtyping import Float, Float64, Int
import numpy as np

from vit_jax import data
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import features as features_lib

USES_HEAD = False
SHOTS = (1, 5, 10, 25)
BIAS = 100.0
# Keeps a feature that is the same in all of the few images finite.
EPSILON = 1e-5
# Images whose scores are on the host at once: 65 MB for 1,000 classes.
BLOCK = 8192

Standardise = Callable[
    [Float[np.ndarray, 'examples width']],
    Float64[np.ndarray, 'examples width_and_bias']]


@dataclasses.dataclass(frozen=True)
class FewshotConfig:
  """An entry of the section `evals`, for `name: 'fewshot'`.

  Attributes:
    name: always 'fewshot'.
    split: to measure on; see `ClassificationConfig`.
    train_split: to take the few images from, none of them in `split`. Each of
      its labels is read once at the start of a run: of a very large data set,
      name a part ('train[:10%]').
    source: data set of both; '' is the one that is trained on.
    every: how often during training.
    batch_size: global.
    shots: images of each class; by default 1, 5, 10 and 25, less those that a
      class of `train_split` does not have.
    seeds: draws of these images, over which the accuracy is averaged.
    penalty: of the squared weights; by default big_vision's.
    held_out: images of each class, beside the shots, on which a penalty is
      chosen from `penalties`, never on `split`; 0 takes `penalty`.
    penalties: to choose from.
    feature: 'representation', what the head gets; 'pooled', before the tanh
      layer of pre-training; 'tokens', the mean of all tokens.
  """
  name: Literal['fewshot'] = 'fewshot'
  split: str = ''
  train_split: str = 'train'
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None
  shots: tuple[int, ...] | None = None
  seeds: int = 3
  penalty: float = 2.0 ** 10
  held_out: int = 0
  penalties: tuple[float, ...] = tuple(2.0 ** i for i in range(-10, 21, 2))
  feature: features_lib.Feature = 'representation'

  def __post_init__(self):
    if self.shots is not None and (
        not self.shots or min(self.shots) < 1
        or len(set(self.shots)) < len(self.shots)):
      raise ValueError(
          f'shots are different numbers from 1 on, but are {self.shots}.')
    if self.seeds < 1 or self.held_out < 0:
      raise ValueError(
          'seeds must be at least 1 and held_out at least 0, but are '
          f'{self.seeds} and {self.held_out}.')
    if not self.penalties or min(self.penalty, *self.penalties) <= 0:
      raise ValueError(
          'penalty and penalties must be positive, but are '
          f'{self.penalty} and {self.penalties}.')


def metrics_of(config: FewshotConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics to choose by, and whether high or low is good."""
  return {f'{shots}_shot': 'max' for shots in config.shots or SHOTS}


def build(
    config: FewshotConfig, context: evaluator_lib.Context,
) -> evaluator_lib.Measure:
  """Wires the evaluator."""
  test = context.open(
      config.split, config.source, batch_size=config.batch_size)
  # First: it says best what is wrong with data of several labels.
  of_test = features_lib.extract(context, test, config.feature)
  all_shots, train = _draw(config, context)
  features_lib.check_same_classes(context, train, test)
  _check_classes(context, train)
  of_train = features_lib.extract(context, train, config.feature)

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    few, tested = of_train(params, between), of_test(params, between)
    assert train.ranks is not None
    found: dict[str, float] = {}
    for shots in all_shots:
      accuracies, penalties = [], []
      for ranks in train.ranks:
        accuracy, penalty = _accuracy(
            config, few, ranks, tested, shots=shots, most=max(all_shots),
            num_classes=train.num_classes)
        accuracies.append(accuracy)
        penalties.append(penalty)
        between()
      found[f'{shots}_shot'] = float(np.mean(accuracies))
      if config.seeds > 1:
        found[f'{shots}_shot_std'] = float(np.std(accuracies, ddof=1))
      if config.held_out:
        found[f'{shots}_shot_penalty'] = float(
            np.exp(np.mean(np.log(penalties))))
    # Not those of the split: of it, what cannot be read may be left out.
    return evaluator_lib.Measured({**found, 'examples': len(tested.labels)})

  return run


def _draw(
    config: FewshotConfig, context: evaluator_lib.Context,
) -> tuple[tuple[int, ...], evaluator_lib.Split]:
  """Returns the shots to measure with, and the few images for all of them.

  Raises:
    ValueError: if a class has fewer images than the config asks for.
  """
  def opened(shots: Sequence[int]) -> evaluator_lib.Split:
    return context.open(
        config.train_split, config.source, batch_size=config.batch_size,
        per_class=max(shots) + config.held_out,
        seeds=tuple(range(config.seeds)))

  shots = config.shots or SHOTS
  try:
    return shots, opened(shots)
  except data.TooFewExamples as error:
    fewest = min(error.classes.values())
    possible = tuple(s for s in shots if s + config.held_out <= fewest)
    if config.shots or not possible:
      classes = ', '.join(
          f'{label}: {count}' for label, count in list(
              error.classes.items())[:8])
      raise ValueError(
          f'{context.where}.shots asks for {max(shots)} images of each class'
          + (f' and held_out for {config.held_out}' if config.held_out else '')
          + f', but in train_split {config.train_split!r} '
          f'{len(error.classes)} class(es) have fewer (class: images): '
          f'{classes}{" and more" * (len(error.classes) > 8)}. Take at most '
          f'{max(0, fewest - config.held_out)}, or a larger train_split.'
      ) from error
  _say(f'note: {context.where} leaves out the shots of '
       f'{", ".join(str(s) for s in shots if s not in possible)}: a class '
       f'of {config.train_split} has {fewest} images')
  return possible, opened(possible)


@functools.cache
def _say(text: str) -> None:
  """Says it once, though batches of another size are wired anew."""
  if jax.process_index() == 0:
    print(text)


def _check_classes(
    context: evaluator_lib.Context, train: evaluator_lib.Split) -> None:
  """Raises if a class is not drawn from at all: it would never be answered."""
  if train.ranks is None:  # Only planned with.
    return
  there = int((train.ranks[0] == 0).sum())
  if there != train.num_classes:
    raise ValueError(
        f'{context.where}: {train.name} has examples of {there} of '
        f'{train.num_classes} classes. Name a larger train_split.')


def _accuracy(
    config: FewshotConfig, few: features_lib.Features,
    ranks: Int[np.ndarray, 'examples'], test: features_lib.Features, *,
    shots: int, most: int, num_classes: int,
) -> tuple[float, float]:
  """Returns the accuracy of one draw, and the penalty it is with."""
  chosen = (ranks >= 0) & (ranks < shots)
  held_out = (ranks >= most) & (ranks < most + config.held_out)
  standardise = standardiser(few.values[chosen])
  targets = np.where(
      few.labels[chosen][:, None] == np.arange(num_classes), 1.0, -1.0)
  penalties = config.penalties if config.held_out else (config.penalty,)
  weights = ridge(standardise(few.values[chosen]), targets, penalties)
  best = 0
  if config.held_out:
    best = int(np.argmax([
        _correct(standardise, few.values[held_out], few.labels[held_out], w)
        for w in weights]))
  return (_correct(standardise, test.values, test.labels, weights[best]),
          penalties[best])


def _correct(
    standardise: Standardise, values: Float[np.ndarray, 'examples width'],
    labels: Int[np.ndarray, 'examples'],
    weights: Float64[np.ndarray, 'width_and_bias classes'],
) -> float:
  """Returns the share of right answers."""
  right = 0
  for start in range(0, len(values), BLOCK):
    part = slice(start, start + BLOCK)
    answers = (standardise(values[part]) @ weights).argmax(axis=-1)
    right += int((answers == labels[part]).sum())
  return right / len(values)


def standardiser(few: Float[np.ndarray, 'examples width']) -> Standardise:
  """Returns a function that standardises features as `few`, and adds a bias."""
  few = few.astype(np.float64)
  mean, std = few.mean(axis=0), few.std(axis=0) + EPSILON

  def standardise(
      features: Float[np.ndarray, 'examples width'],
  ) -> Float64[np.ndarray, 'examples width_and_bias']:
    columns = (features.astype(np.float64) - mean) / std
    return np.pad(columns, ((0, 0), (0, 1)), constant_values=BIAS)

  return standardise


def ridge(
    x: Float64[np.ndarray, 'examples width'],
    y: Float64[np.ndarray, 'examples targets'],
    penalties: Sequence[float],
) -> list[Float64[np.ndarray, 'width targets']]:
  """Returns argmin_w |x w - y|^2 + penalty |w|^2 for each of the penalties.

  One eigendecomposition, of the smaller of the two Gram matrices, does for all
  of them: with x^T x = q diag(s) q^T,

    w = (x^T x + penalty)^-1 x^T y = q diag(1 / (s + penalty)) q^T x^T y

  and with x x^T = q diag(s) q^T, w = x^T q diag(1 / (s + penalty)) q^T y.
  """
  examples, width = x.shape
  if examples >= width:
    s, q = np.linalg.eigh(x.T @ x)
    left, right = q, q.T @ (x.T @ y)
  else:
    s, q = np.linalg.eigh(x @ x.T)
    left, right = x.T @ q, q.T @ y
  return [(left / (s + penalty)) @ right for penalty in penalties]
