"""Metrics and figures of predicted classes of pixels."""

from collections.abc import Callable, Sequence

from jaxtyping import Float
import numpy as np

from vit_jax.evals import evaluator
from vit_jax.exceptions import UserError

VALUES = 256  # Possible values of a mask pixel.
NUM_DRAWN = 5  # Images in a figure.
METRICS = (evaluator.Metric('mean_iou', 'Mean IoU', is_fraction=True),
           evaluator.Metric('pixel_accuracy', is_fraction=True),
           evaluator.Metric('mean_accuracy', is_fraction=True))


def result(
    counts: Float[np.ndarray, 'values values'], examples: int, *,
    names: Sequence[str], split: str,
    images: Callable[[], list[np.ndarray]],
) -> evaluator.Result:
  """Returns the metrics of a split.

    IoU = hits / (labelled + predicted - hits),  accuracy = hits / labelled

  of each class. Means are over the classes that occur: in labels or predictions
  for the IoU, in labels for the accuracy.

  Args:
    counts: pixels of each class [row] predicted as each class [column].
    examples: number of images.
    names: names of the first classes.
    split: name of the split, for messages.
    images: see `evaluator.Result`.

  Raises:
    UserError: if no pixel has a class.
  """
  hits, labelled = np.diag(counts), counts.sum(axis=1)
  union = labelled + counts.sum(axis=0) - hits
  if not union.any():
    raise UserError(f'No pixel of the split {split!r} has a class.')
  last = np.flatnonzero(union)[-1] + 1
  with np.errstate(invalid='ignore'):  # NaN for classes that do not occur.
    iou, accuracy = (hits / union)[:last], (hits / labelled)[:last]
  return evaluator.Result(
      {'mean_iou': float(np.nanmean(iou)),
       'pixel_accuracy': float(hits.sum() / counts.sum()),
       'mean_accuracy': float(np.nanmean(accuracy)), 'examples': examples},
      {'class_iou': iou, 'class_accuracy': accuracy},
      (*names[:last], *(f'class {i}' for i in range(len(names), last))),
      images=images)
