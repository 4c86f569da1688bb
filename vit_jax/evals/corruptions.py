"""Accuracy on corrupted images, as for ImageNet-C.

Images are corrupted on the device after resizing, so that each is read once.
The mean corruption error is the mean error over corruptions and severities, as
for CIFAR-10-C; it is not divided by the errors of AlexNet (arXiv 1903.12261,
section 4.2).
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import metrics
from vit_jax import schema
from vit_jax import types
from vit_jax.data.augment import corruptions as corruptions_lib
from vit_jax.evals import evaluator
from vit_jax.evals import passes


@dataclasses.dataclass(frozen=True)
class CorruptionsConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'corruptions'`.

  Attributes:
    corruptions: names in `data/augment/corruptions.py`.
    severities: from 1 to 5.
    seed: random values depend only on this and the position in the split.
  """
  name: Literal['corruptions'] = 'corruptions'
  corruptions: tuple[str, ...] = tuple(corruptions_lib.CORRUPTIONS)
  severities: tuple[int, ...] = corruptions_lib.SEVERITIES
  seed: int = 0

  def __post_init__(self):
    for name in self.corruptions:
      schema.check_name(
          name, list(corruptions_lib.CORRUPTIONS), what='corruption')
    allowed = set(corruptions_lib.SEVERITIES)
    if not (self.corruptions and self.severities
            and set(self.severities) <= allowed):
      raise ValueError(
          'corruptions and severities must not be empty, and severities are '
          f'from 1 to 5; got {self.corruptions} and {self.severities}.')

  def metrics(self) -> dict[str, evaluator.Mode]:
    return {'accuracy_corrupted': 'max', 'accuracy': 'max',
            'mean_corruption_error': 'min'}

  @property
  def num_passes(self) -> int:
    corrupted = len(self.corruptions) * len(self.severities)
    return (1 + corrupted) * super().num_passes

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open(self)
    context.check_classes(split, single=True)
    if split.pixel_scale is None:
      raise ValueError(
          f'{context.where} corrupts 8-bit grey or RGB images, but those of '
          f'{split.name} have another type. Remove the evaluator.')
    mean, std = map(np.float32, split.pixel_scale)
    functions = [
        functools.partial(jitted, severity=severity)
        for jitted in map(self._jitted, self.corruptions)
        for severity in self.severities]

    def versions() -> Iterator[dict[str, Any]]:
      """Yields each batch as it is, then with each corruption."""
      start = 0
      for batch in split.batches():
        yield {**batch, 'version': np.int32(0)}
        for i, corrupt in enumerate(functions, start=1):
          images = corrupt(batch['image'] * std + mean, start)
          yield {**batch, 'image': (images - mean) / std,
                 'version': np.int32(i)}
        start += len(batch['mask'])

    def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
      logits = context.predict(params, batch)['logits']
      return {'correct': metrics.top_k_correct(logits, batch['label'], k=1),
              'version': jnp.full(len(logits), batch['version'])}

    def finish(values: passes.Values) -> evaluator.Result:
      count = np.bincount(values['version'])
      clean, *rest = np.bincount(
          values['version'], weights=values['correct']) / count
      table = np.reshape(rest, (len(self.corruptions), -1))
      return evaluator.Result(
          {'accuracy_corrupted': float(table.mean()), 'accuracy': float(clean),
           'mean_corruption_error': float(1 - table.mean()),
           'examples': int(count[0])},
          {'corruptions': table, 'severities': np.array(self.severities)},
          self.corruptions,
          images=lambda: [np.asarray(255 * corrupt(
              split.image(0)[None].astype(np.float32) / 255, 0)[0], np.uint8)
                          for corrupt in functions])

    times = 1 + len(functions)
    return passes.gather(dataclasses.replace(
        split, batches=versions, num_examples=times * split.num_examples,
        max_unreadable=times * split.max_unreadable), batch_values, finish)

  def _jitted(self, name: str) -> Callable[..., jax.Array]:
    """Returns the function of images, their first position and `severity`."""
    def corrupt(images: jax.Array, start: Any, severity: Any) -> jax.Array:
      keys = jax.vmap(functools.partial(
          jax.random.fold_in, jax.random.key(self.seed)))(
              start + jnp.arange(len(images)))
      return corruptions_lib.corrupt(
          images, keys, name=name, severity=severity)

    return jax.jit(corrupt, static_argnames=(
        'severity' if name in corruptions_lib.STATIC else ()))
