"""ImageNet's reassessed labels, "ReaL" (arXiv 2006.07159).

real.json of https://github.com/google-research/reassessed-imagenet lists the
classes of ILSVRC2012_val_00000001.JPEG and so on. Images are matched by file
name, because TFDS stores them in another order.
"""

from collections.abc import Sequence
import dataclasses
import functools
import re
from typing import Any

from etils import epath
from jaxtyping import Integer, UInt64
import numpy as np

from vit_jax import metrics
from vit_jax import types
from vit_jax import untrusted
from vit_jax.data import dataset as dataset_lib
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.exceptions import UserError

_NAME = re.compile(r'(?:.*/)?ILSVRC2012_val_(\d{8})\.jpe?g', re.IGNORECASE)
_SYNSET = re.compile(r'n\d{8}')


@dataclasses.dataclass(frozen=True, eq=False)
class Relabelled(protocol.Source):
  """A source with replaced, multi-label labels."""
  source: protocol.Source
  labels: Sequence[Sequence[int]]

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> dict[str, Any]:
    example = self.source[index]
    name = example.get('file_name') or self.source.key(index)
    found = _NAME.fullmatch(name)
    if not found or not 1 <= int(found[1]) <= len(self.labels):
      raise UserError(
          f'real_labels are for ILSVRC2012_val_00000001.JPEG to '
          f'{len(self.labels):08}.JPEG, but an image is {name!r}. Evaluate on '
          'the validation images of ImageNet 2012: TFDS imagenet2012, or a '
          'folder with the original file names.')
    return {**example, 'label': self.labels[int(found[1]) - 1]}

  def groups_of(
      self, indices: Integer[np.ndarray, '_'],
  ) -> UInt64[np.ndarray, '_'] | None:
    return split_strings.groups(self.source, indices)

  def key(self, index: int) -> str:
    return self.source.key(index)


def evaluate(context: evaluator.Context, config: Any) -> evaluator.Evaluate:
  """Returns the evaluation of `classification` with `real_labels`."""
  split = context.open(config, relabel=functools.partial(
      with_real_labels, path=config.real_labels))

  def batch_means(
      params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
    logits, labels = context.predict(params, batch)['logits'], batch['label']
    # Images without labels do not count.
    return {'accuracy': metrics.Mean.from_model_output(
        metrics.precision_at_1(logits, labels),
        batch['mask'] * (labels > 0).any(axis=-1))}

  return passes.mean(split, batch_means)


def with_real_labels(
    dataset: dataset_lib.Dataset, path: str) -> dataset_lib.Dataset:
  """Returns ImageNet's validation images with their reassessed labels.

  Raises:
    UserError: if the file, the classes or the first image do not match.
  """
  labels = _read(epath.Path(path).expanduser())
  classes = 1 + max(max(entry, default=0) for entry in labels)
  if dataset.num_classes < classes or dataset.multi_label:
    raise UserError(
        f'{path} (real_labels) needs {classes:,} classes with one label per '
        f'image, but {dataset.name} has {dataset.num_classes:,}'
        + (' with several labels per image.' if dataset.multi_label else '.'))
  names = list(dataset.class_names or ())
  if names and not (names == sorted(names) and all(map(_SYNSET.match, names))):
    raise UserError(
        f'{path} (real_labels) numbers the classes in the order of their '
        f'WordNet IDs, but {dataset.name} names them {names[0]!r}, '
        f'{names[-1]!r}. Use folders, or labels of a table, with these IDs, '
        'such as n01440764.')
  source = Relabelled(dataset.source, labels)
  source.label(0)
  return dataclasses.replace(dataset, source=source, multi_label=True)


def _read(path: epath.Path) -> list[list[int]]:
  try:
    labels = untrusted.parse_json(untrusted.read_text(path))
    if not labels or not all(
        type(i) is int and i >= 0 for entry in labels for i in entry):
      raise UserError('it is not a list of lists of class indices')
  except (OSError, TypeError, UserError) as error:
    raise UserError(
        f'Cannot read {path} (real_labels): {error}. Download real.json of '
        'https://github.com/google-research/reassessed-imagenet.') from error
  return labels
