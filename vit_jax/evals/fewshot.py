"""Few-shot accuracy of simple classifiers on frozen representations.

The default is linear accuracy in closed form (ViT, section 4.1):

Ridge regression from the representations of a few images of each class to
targets in {-1, 1}. As in big_vision's `fewshot_lsr`, features are standardised
with the mean and deviation of the few images, and the bias is a constant
feature of 100, large enough that its weight is hardly penalised. A logistic
regression and nearest neighbours can share the features.
"""

from collections.abc import Callable
import dataclasses
import itertools
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Float64, Int, UInt64
import numpy as np
from sklearn import linear_model
from sklearn import metrics as sklearn_metrics

from vit_jax import fields
from vit_jax import types
from vit_jax.data.splits import holdout
from vit_jax.data.splits import split_strings
from vit_jax.evals import evaluator
from vit_jax.evals import features as features_lib
from vit_jax.evals import knn
from vit_jax.exceptions import UserError

SHOTS = (1, 5, 10, 25)
ALL = np.iinfo(np.int64).max  # Images per class of a sample of all.
BIAS = 100.0
EPSILON = 1e-5  # Keeps constant features finite.
# Of the logistic regression, relative to the mean loss; the strongest first, so
# that ties go to it.
LINEAR_PENALTIES = tuple(10.0 ** i for i in range(1, -6, -1))
_BLOCK_ROWS = 8192  # Images scored at a time: 65 MB for 1,000 classes.


@dataclasses.dataclass(frozen=True)
class FewshotConfig(features_lib.FeatureEvaluatorConfig):
  """An entry of the section `evals` with `name: 'fewshot'`.

  Attributes:
    train_split: source of the few images; must not overlap with `split`. All
      of its labels are read once at the start of a run: use a part of very
      large datasets ('train[:10%]'). 'auto': as for `knn`.
    shots: images per class; by default 1, 5, 10 and 25, except those that
      exceed the smallest class of `train_split`. 0 stands for all images; a
      smaller class is then used whole for every number.
    classifiers: 'ridge'; 'linear', a logistic regression whose penalty is
      selected on a fifth of the same images (of whole groups, with
      `data.group`), or is the strongest, 10, with fewer than 5 images per
      class; 'knn' as the evaluator `knn`, with at most
      `shots` neighbours.
    seeds: number of random samples of images, whose accuracies are averaged.
    penalty: weight of the L2 penalty; the default is big_vision's.
    allow_fewer: whether classes with fewer images are used whole, in place of
      an error.
  """
  name: Literal['fewshot'] = 'fewshot'
  train_split: str = 'train'
  shots: tuple[int, ...] | None = None
  classifiers: tuple[Literal['ridge', 'linear', 'knn'], ...] = ('ridge',)
  seeds: int = 3
  penalty: float = 2.0 ** 10
  allow_fewer: bool = False

  fit_field: ClassVar[str] = 'train_split'

  def __post_init__(self):
    if self.shots is not None and (
        not self.shots or min(self.shots) < 0
        or len(set(self.shots)) < len(self.shots)):
      raise UserError(
          'shots must be different numbers >= 1, or 0 for all images, but are '
          f'{self.shots}.')
    if not self.classifiers:
      raise UserError("classifiers is empty. Use, for example, ['ridge'].")
    fields.check_range(self, 'seeds', low=1)
    fields.check_range(self, 'penalty', above=0)

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return tuple(
        evaluator.Metric(_metric(*each), is_fraction=True)
        for each in itertools.product(self.classifiers, self.shots or SHOTS))

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    test = context.open(self)
    # Called first, because its error for multi-label data is the clearest.
    extract_test = features_lib.extract(context, test, self.feature)
    shots = self.shots or SHOTS
    train = context.open(
        dataclasses.replace(self, split=self.train_split),
        per_class=max(shots) if min(shots) else ALL,
        seeds=tuple(range(self.seeds)))
    extract_train = features_lib.extract(
        context, train, self.feature, test=test)
    shots = self._possible_shots(context, train)

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      train_features = extract_train(params, on_batch)
      test_features = extract_test(params, on_batch)
      assert train.ranks is not None
      groups = split_strings.groups(train.dataset.source)
      result: dict[str, float] = {}
      for classifier, count in itertools.product(self.classifiers, shots):
        found = []
        # All images are the same sample for every seed.
        for ranks in train.ranks if count else train.ranks[:1]:
          chosen = (ranks >= 0) & (ranks < (count or ALL))
          predictions = _predict(
              self, classifier, train_features, chosen, ranks % 5 == 4, groups,
              test_features.values, shots=count, after_fit=on_batch)
          found.append(np.mean(test_features.labels == predictions))
          on_batch()
        metric = _metric(classifier, count)
        result[metric] = float(np.mean(found))
        if len(found) > 1:
          result[f'{metric}_std'] = float(np.std(found, ddof=1))
      # Not split.dataset.num_examples, which may include unreadable images.
      return evaluator.Result({**result, 'examples': len(test_features.labels)})

    return run

  def _possible_shots(
      self, context: evaluator.Context, train: evaluator.Split,
  ) -> tuple[int, ...]:
    """Returns the shots to evaluate, for which all classes are large enough."""
    shots = self.shots or SHOTS
    if train.ranks is None:  # A plan has no data.
      return shots
    sampled = train.ranks[0][train.ranks[0] >= 0]
    # The number of ranks that all classes have.
    smallest = int((np.bincount(sampled) == train.dataset.num_classes).sum())
    if not smallest:
      raise UserError(
          f'{context.where}: {train.dataset.title} has no examples of some of '
          f'the {train.dataset.num_classes} classes, which could never be '
          'predicted. Use a larger train_split.')
    possible = tuple(
        s for s in shots if s <= smallest or 0 in shots or self.allow_fewer)
    if possible == shots:
      return shots
    if self.shots:
      raise UserError(
          f'{context.where} needs {max(shots)} images of each class (shots), '
          f'but a class of train_split {self.train_split!r} has {smallest}. '
          'Use fewer, or a larger train_split.')
    context.note(
        f'note: {context.where} leaves out the shots '
        f'{", ".join(str(s) for s in shots if s not in possible)}: a class '
        f'of {self.train_split} has {smallest} images')
    return possible


def _metric(classifier: str, shots: int) -> str:
  """Returns '5_shot', 'linear_5_shot' or 'knn_all_shot'."""
  prefix = '' if classifier == 'ridge' else f'{classifier}_'
  return f'{prefix}{shots or "all"}_shot'


def _predict(
    config: FewshotConfig, classifier: str, train: features_lib.Features,
    chosen: Bool[np.ndarray, 'examples'],
    held_out: Bool[np.ndarray, 'examples'],
    groups: UInt64[np.ndarray, 'examples'] | None,
    queries: Float[np.ndarray, 'queries width'], *, shots: int,
    after_fit: evaluator.OnBatch,
) -> Int[np.ndarray, 'queries']:
  """Returns the classes of queries, predicted from the chosen images.

  `held_out` are images that select a penalty, unless `groups` decide.
  """
  values, labels = train.values[chosen], train.labels[chosen]
  if classifier == 'knn':
    usual = knn.KnnConfig()
    k = min(usual.k, shots or usual.k, len(labels))
    return knn.predict(queries, values, labels, k=k,
                       temperature=usual.temperature)
  held_out = held_out[chosen]
  if groups is not None and held_out.any():
    held_out = holdout.hold_out(groups[chosen], labels, fraction=0.2)
  standardise = standardiser(values, bias=classifier == 'ridge')
  fitted = (
      linear_model.RidgeClassifier(alpha=config.penalty, fit_intercept=False)
      .fit(standardise(values), labels) if classifier == 'ridge' else
      logistic_regression(standardise(values), labels, held_out=held_out,
                          after_fit=after_fit))
  blocks = np.array_split(queries, -(-len(queries) // _BLOCK_ROWS))
  return np.concatenate(
      [fitted.predict(standardise(block)) for block in blocks])


def standardiser(
    train: Float[np.ndarray, 'examples width'], *, bias: bool,
) -> Callable[[np.ndarray], np.ndarray]:
  """Returns a function that standardises features; `bias` is one more."""
  train = train.astype(np.float64)
  mean, std = train.mean(axis=0), train.std(axis=0) + EPSILON

  def standardise(features: np.ndarray) -> np.ndarray:
    columns = (features.astype(np.float64) - mean) / std
    return np.pad(columns, ((0, 0), (0, int(bias))), constant_values=BIAS)

  return standardise


def unfitted(penalty: float, count: int) -> linear_model.LogisticRegression:
  """Returns a regression for `count` examples; the penalty is of their mean."""
  return linear_model.LogisticRegression(C=1 / (penalty * count), max_iter=1000)


def logistic_regression(
    x: Float64[np.ndarray, 'examples width'],
    labels: Int[np.ndarray, 'examples'], *,
    held_out: Bool[np.ndarray, 'examples'],
    after_fit: evaluator.OnBatch = lambda: None,
) -> linear_model.LogisticRegression:
  """Returns the regression with the penalty that is best on held-out examples.

  After the selection by loss, all examples are fitted. Without held-out
  examples, the penalty is the strongest.

  Args:
    x: standardised features.
    labels: their classes.
    held_out: examples for the selection; the others have all classes.
    after_fit: called after each penalty.
  """
  train = x[~held_out], labels[~held_out]

  def loss(penalty: float) -> float:
    found = unfitted(penalty, len(train[0])).fit(*train)
    after_fit()
    return sklearn_metrics.log_loss(
        labels[held_out], found.predict_proba(x[held_out]),
        labels=np.unique(labels))

  penalty = min(LINEAR_PENALTIES, key=loss) if held_out.any() else (
      LINEAR_PENALTIES[0])
  return unfitted(penalty, len(x)).fit(x, labels)
