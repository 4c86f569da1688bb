"""Loss and accuracy over a split, each example counted exactly once."""

from collections.abc import Callable, Iterator
import dataclasses
from typing import Literal

import jax
from jaxtyping import Array, Float

from vit_jax import metrics
from vit_jax import records
from vit_jax import types

TOP_K = 5
METRICS = ('loss', 'accuracy', f'accuracy_top_{TOP_K}', 'precision_at_1')


@dataclasses.dataclass(frozen=True)
class ClassificationConfig:
  """An entry of the section `evals`, for `name: 'classification'`.

  Attributes:
    name: always 'classification'.
    split: TFDS split string, for example 'train[98%:]'; '' is the split that
      the data set's results are published on, such as 'test'.
    source: data set; '' is the one that is trained on.
    every: how often during training; None is at its end alone.
    batch_size: global; None is the training's.
  """
  name: Literal['classification'] = 'classification'
  split: str = ''
  source: str = ''
  every: records.Duration | None = None
  batch_size: int | None = None


class Classification:
  """Evaluates parameters on a split."""

  def __init__(
      self,
      *,
      predict: Callable[[types.Params, types.Batch], types.Outputs],
      loss: Callable[[Float[Array, 'batch classes'], jax.Array],
                     Float[Array, 'batch']],
      batches: Callable[[], Iterator[types.Batch]],
      num_examples: int,
      multi_label: bool,
  ):
    """Wires the evaluator.

    Args:
      predict: the model, without dropout.
      loss: per-example loss of logits and labels.
      batches: opens the split anew; the last batch is padded and masked.
      num_examples: in the split; the count is held against it.
      multi_label: measures precision at 1 instead of accuracies.
    """
    self._batches = batches
    self._num_examples = num_examples

    def measure(
        params: types.Params, batch: types.Batch,
    ) -> dict[str, metrics.Mean]:
      logits, labels = predict(params, batch)['logits'], batch['label']
      values = {'loss': loss(logits, labels)}
      if multi_label:
        values['precision_at_1'] = metrics.precision_at_1(logits, labels)
      else:
        values['accuracy'] = metrics.top_k_correct(logits, labels, k=1)
        if logits.shape[-1] > TOP_K:
          values[f'accuracy_top_{TOP_K}'] = metrics.top_k_correct(
              logits, labels, k=TOP_K)
      return {name: metrics.Mean.from_model_output(v, batch['mask'])
              for name, v in values.items()}

    self._measure = jax.jit(measure)

  def __call__(
      self, params: types.Params,
      between: Callable[[], None] = lambda: None,
  ) -> dict[str, float]:
    """Returns the metrics of `params`.

    Args:
      params: parameters of the model.
      between: called after each batch; may raise to cut the evaluation off.

    Raises:
      RuntimeError: if another number of examples was counted than there are.
    """
    total: dict[str, metrics.Mean] | None = None
    for batch in self._batches():
      part = self._measure(params, batch)
      total = part if total is None else {
          name: value.merge(part[name]) for name, value in total.items()}
      between()
    if total is None:
      raise ValueError('The split to evaluate on holds no example.')
    total = jax.device_get(total)
    counted = int(total['loss'].count)
    if counted != self._num_examples:
      raise RuntimeError(
          f'The evaluation counted {counted} examples, but its split has '
          f'{self._num_examples}: the input pipeline lost or repeated some.')
    return {**{name: float(m.compute()) for name, m in total.items()},
            'examples': counted}
