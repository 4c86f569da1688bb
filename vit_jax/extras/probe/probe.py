"""Accuracy of a linear probe whose features and penalty are chosen.

One pass over the images yields the class token and the average of the patches
after each of the last four blocks. Logistic regressions are fitted to a grid of
layers, pooling and L2 penalties. The one with the best accuracy on a fifth of
the training images is fitted again, to all of them, and tested.

The grid has the four inputs of DINOv2's linear evaluation (arXiv 2304.07193,
appendix B.3): the class tokens of the last block or of the last four, with or
without the average of the last block's patches, all after the final norm.
DINOv2 trains them by SGD on random crops and reports the best of the grid on
the validation images. Here, images have no augmentation, and the choice does
not depend on test images, as in DINOv2's logistic regression.

The norm has no scale and bias here: standardising features undoes both.
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int
import numpy as np
from sklearn import metrics as sklearn_metrics

from vit_jax import console
from vit_jax import metrics
from vit_jax import types
from vit_jax.data.splits import holdout
from vit_jax.data.splits import split_strings
from vit_jax.evals import evaluator
from vit_jax.evals import fewshot
from vit_jax.evals import passes
from vit_jax.exceptions import UserError
from vit_jax.models import feature_layers

BLOCKS = 4
NORM_EPSILON = 1e-6
WHOLE = 'representation'  # Features of a model that is not a Transformer.
DEVELOPMENT = metrics.Metric(
    'development_accuracy', 'Development accuracy', is_fraction=True)


@dataclasses.dataclass(frozen=True)
class ProbeConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'probe'`.

  Attributes:
    train_split: images that probes are fitted to and chosen on; must not
      overlap with `split`. Each host keeps their features: 1.2 GB for 50,000
      images at width 768. 'auto' as for `knn`.
    layers: features of the 'last' layer, or of the last four, 'concatenated' or
      their 'mean'.
    pooling: the class token ('cls'), the 'average' of the patches, or 'both':
      class tokens of these layers and the average of the last layer. A model
      without a class token has 'average' only.
    penalties: weights of the L2 penalty, relative to the mean loss.
  """
  name: Literal['probe'] = 'probe'
  train_split: str = 'train'
  layers: tuple[Literal['last', 'concatenated', 'mean'], ...] = (
      'last', 'concatenated', 'mean')
  pooling: tuple[Literal['cls', 'average', 'both'], ...] = (
      'cls', 'average', 'both')
  penalties: tuple[float, ...] = fewshot.LINEAR_PENALTIES

  uses_head: ClassVar[bool] = False
  fit_field: ClassVar[str] = 'train_split'

  def __post_init__(self):
    for name in ('layers', 'pooling', 'penalties'):
      if not getattr(self, name):
        raise UserError(f'{name} is empty. Leave it out for the default.')
    if min(self.penalties) <= 0:
      raise UserError(f'penalties must be above 0, but are {self.penalties}.')
    if self.flip:
      raise UserError('probe does not support flip. Remove it.')

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return metrics.ACCURACY, DEVELOPMENT

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    test = context.open(self)
    extract_test = _extract(context, test)
    train = context.open(
        dataclasses.replace(self, split=self.train_split),
        per_class=fewshot.ALL)  # For ranks.
    extract_train = _extract(context, train)
    _check_classes(context, train, test)
    inputs = self._inputs(context)

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      values = extract_train(params, on_batch)
      labels = values['label']
      held_out = _held_out(context, train, labels)
      grid = [_choose_penalty(
          names, join(values, *names), labels, held_out,
          penalties=self.penalties, after_fit=on_batch) for names in inputs]
      choice = max(grid, key=Probe.order)
      predict = fit(join(values, *choice.names), labels, choice.penalty)
      on_batch()
      values = extract_test(params, on_batch)
      probabilities = predict(join(values, *choice.names))
      correct = probabilities.argmax(axis=-1) == values['label']
      return evaluator.Result(
          {'accuracy': float(correct.mean()),
           'development_accuracy': choice.accuracy, 'examples': len(correct)},
          {'layers': np.array(choice.names[0]),
           'pooling': np.array(choice.names[1]),
           'penalty': np.array(choice.penalty)},
          details=(_table(grid, int(held_out.sum())),))

    return run

  def _inputs(self, context: evaluator.Context) -> list[tuple[str, str]]:
    """Returns the layers and the pooling of each input."""
    model = context.model
    if not getattr(model, 'num_layers', 0):
      return [(WHOLE, '')]
    pooling = [name for name in self.pooling
               if model.has_cls or name == 'average']
    if not pooling:
      raise UserError(
          f'{context.where}.pooling is {list(self.pooling)}, but the model has '
          "no class token. Use ['average'].")
    return list(itertools.product(self.layers, pooling))


@dataclasses.dataclass(frozen=True)
class Probe:
  """A penalty for an input, and its result on the development part.

  Attributes:
    names: layers and pooling of the input.
    features: number of features.
    penalty: weight of the L2 penalty.
    accuracy: accuracy on the development part.
    loss: mean loss there.
  """
  names: tuple[str, str]
  features: int
  penalty: float
  accuracy: float
  loss: float

  def order(self) -> tuple[float, float]:
    """Returns a key that is largest for the best; the loss decides ties."""
    return self.accuracy, -self.loss


def _check_classes(
    context: evaluator.Context, train: evaluator.Split, test: evaluator.Split,
) -> None:
  """Raises a UserError if a class has no training images."""
  dataset = train.dataset
  if dataset.num_classes != test.dataset.num_classes:
    raise UserError(
        f'{context.where}: {dataset.title} has {dataset.num_classes} classes, '
        f'but {test.dataset.title} has {test.dataset.num_classes}.')
  if train.ranks is not None and (  # A plan has no data.
      (train.ranks[0] == 0).sum() < dataset.num_classes):
    raise UserError(
        f'{context.where}: {dataset.title} has no examples of some of the '
        f'{dataset.num_classes} classes, which could never be predicted. Use '
        'a larger train_split.')


def _extract(
    context: evaluator.Context, split: evaluator.Split,
) -> Callable[[types.Params, evaluator.OnBatch], passes.Values]:
  """Returns a function that gathers pooled features and labels of a split.

  Features are `cls` and `mean` [examples, blocks, width], in the order of the
  blocks, or those of a model that is not a Transformer, WHOLE [examples,
  width].
  """
  context.check_classes(split, single=True)
  model = context.model
  depth = getattr(model, 'num_layers', 0)

  def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
    if not depth:
      found = context.predict(params, batch)[WHOLE]
      return {WHOLE: found.astype(jnp.float32), 'label': batch['label']}
    outputs = context.predict(params, batch, capture='tokens')
    blocks = [jax.nn.standardize(
        feature_layers.select(outputs, f'layers/{n}').astype(jnp.float32),
        epsilon=NORM_EPSILON) for n in range(max(1, depth - BLOCKS + 1),
                                             depth + 1)]
    kinds = ('cls', 'mean') if model.has_cls else ('mean',)
    return {'label': batch['label'], **{
        kind: jnp.stack([feature_layers.extract(
            block, kind, model, grid=context.grid) for block in blocks], axis=1)
        for kind in kinds}}

  def finish(values: passes.Values) -> passes.Values:
    if not all(np.isfinite(each).all() for each in values.values()):
      raise UserError(
          f'{context.where}: a feature of an image of {split.dataset.title} is '
          'NaN or infinite.')
    return values

  return passes.gather(split, batch_values, finish)


def join(
    values: passes.Values, layers: str, pooling: str,
) -> Float[np.ndarray, 'examples features']:
  """Returns an input of probes, from gathered features."""
  if layers == WHOLE:
    return values[WHOLE]
  blocks = values['mean' if pooling == 'average' else 'cls']
  features = {
      'last': lambda: blocks[:, -1],
      'concatenated': lambda: blocks.reshape(len(blocks), -1),
      'mean': lambda: blocks.mean(axis=1)}[layers]()
  return features if pooling != 'both' else np.concatenate(
      [features, values['mean'][:, -1]], axis=-1)


def _held_out(
    context: evaluator.Context, train: evaluator.Split,
    labels: Int[np.ndarray, 'examples'],
) -> Bool[np.ndarray, 'examples']:
  """Returns the development part: a fifth of each class, in whole groups."""
  assert train.ranks is not None
  groups = split_strings.groups(train.dataset.source)
  held_out = train.ranks[0] % 5 == 4 if groups is None else holdout.hold_out(
      groups, labels, fraction=0.2)
  if not held_out.any():
    raise UserError(
        f'{context.where} chooses on a fifth of the images of each class, but '
        f'no class of {train.dataset.title} has 5 images'
        f'{" in 2 groups" * (groups is not None)}. Use a larger train_split.')
  return held_out


def fit(
    features: Float[np.ndarray, 'examples features'],
    labels: Int[np.ndarray, 'examples'], penalty: float,
) -> Callable[[np.ndarray], np.ndarray]:
  """Returns a function from features to probabilities [examples, classes]."""
  standardise = fewshot.standardiser(features, bias=False)
  model = fewshot.unfitted(penalty, len(labels)).fit(
      standardise(features), labels)
  return lambda features: model.predict_proba(standardise(features))


def _choose_penalty(
    names: tuple[str, str], features: Float[np.ndarray, 'examples features'],
    labels: Int[np.ndarray, 'examples'], held_out: Bool[np.ndarray, 'examples'],
    *, penalties: Sequence[float], after_fit: Callable[[], None],
) -> Probe:
  """Returns the best probe of an input; the strongest penalty of equal ones."""
  found = []
  for penalty in sorted(penalties, reverse=True):
    probabilities = fit(
        features[~held_out], labels[~held_out], penalty)(features[held_out])
    found.append(Probe(
        names, features.shape[-1], penalty,
        accuracy=float(np.mean(
            probabilities.argmax(axis=-1) == labels[held_out])),
        loss=float(sklearn_metrics.log_loss(
            labels[held_out], probabilities,
            labels=np.arange(probabilities.shape[-1])))))
    after_fit()
  return max(found, key=Probe.order)


def _table(
    grid: Sequence[Probe], examples: int) -> tuple[str, evaluator.Printed]:
  """Returns a table of the inputs, the choice first."""
  rows = sorted(grid, key=Probe.order, reverse=True)
  return (
      f'choice (first row) on {console.format_count(examples, "image")} of the '
      'training split',
      (['layers', 'pooling', 'features', 'penalty', 'accuracy'],
       [[*one.names, one.features, one.penalty,
         console.format_metric(one.accuracy, digits=4, is_fraction=True)]
        for one in rows]))
