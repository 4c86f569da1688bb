"""Semantic segmentation with the trained decoder of the model.

Images are resized for the model, and its logits are interpolated bilinearly to
the size of each image as stored, where they are compared with its mask.
"""

import dataclasses
from typing import ClassVar, Literal

import jax
import numpy as np

from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.extras.segmentation import mask_reader
from vit_jax.extras.segmentation import pixels
from vit_jax.extras.segmentation import predictions
from vit_jax.parallel import multihost


@dataclasses.dataclass(frozen=True)
class SegmentationHeadConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'segmentation_head'`."""
  name: Literal['segmentation_head'] = 'segmentation_head'

  uses_labels: ClassVar[bool] = False

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return pixels.METRICS

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open(self, relabel=mask_reader.with_masks)
    assert split.mask is not None
    read_mask = split.mask

    @jax.jit
    def predict(
        params: types.Params, batch: types.Batch,
    ) -> tuple[jax.Array, jax.Array]:
      return context.predict(params, batch)['logits'], batch['mask']

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      counts = np.zeros(pixels.VALUES**2, np.int64)
      drawn: dict[int, np.ndarray] = {}
      start = examples = 0
      for batch in split.batches():
        logits, mask = multihost.fetch(predict(params, batch))
        if logits.ndim != 4:
          raise ValueError(
              f'{context.where} measures the decoder of a model, but the model '
              f'has none. Use --config.{context.where}.name=segmentation.')
        for row in np.flatnonzero(mask).tolist():
          label = read_mask(start + row)
          found = predictions.from_logits(logits[row], label.shape)
          known = label != mask_reader.IGNORED
          counts += np.bincount(
              pixels.VALUES * label[known].astype(np.int64) + found[known],
              minlength=pixels.VALUES**2)
          examples += 1
          if len(drawn) < pixels.NUM_DRAWN:
            drawn[start + row] = found
        start += len(mask)
        on_batch()
      passes.check_count(examples, split)
      return pixels.result(
          counts.reshape(pixels.VALUES, -1).astype(float), examples,
          names=context.train_data.class_names or (), split=split.dataset.title,
          images=lambda: [
              *(split.original(i)[0] for i in drawn),
              *(read_mask(i)[..., None] for i in drawn),
              *(found[..., None] for found in drawn.values())])

    return run
