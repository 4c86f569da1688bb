"""Accuracy on a dataset with a subset of the model's classes, by name.

ImageNet-V2, -A, -R and -Sketch name their classes by WordNet synsets, such as
n01440764. The prediction is the class of the dataset with the largest logit.
ImageNet-A and -R have 200 of the 1,000 classes (arXiv 1907.07174, 2006.16241).

Each of 113 ObjectNet classes maps to one or more ImageNet classes, and its
logit is the largest of theirs; images of other classes are left out. The map is
read from the folder `mappings` of the release (https://objectnet.dev), whose
ImageNet indices are positions in the sorted synsets.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any, Literal

from etils import epath
import jax.numpy as jnp
import numpy as np

from vit_jax import classes
from vit_jax import data
from vit_jax import metrics
from vit_jax import types
from vit_jax import untrusted
from vit_jax.data import known_datasets
from vit_jax.evals import classification
from vit_jax.evals import evaluator
from vit_jax.evals import passes

_IMAGENET_CLASSES = 1000
# Sections of evaluators on known datasets.
SECTIONS = {
    'imagenet_v2': {'name': 'shift', 'source': 'imagenet_v2/matched-frequency'},
    **{source: {'name': 'shift', 'source': source}
       for source in ('imagenet_a', 'imagenet_r', 'imagenet_sketch')},
    'objectnet': {'name': 'shift', 'source': './objectnet-1.0/images',
                  'mappings': './objectnet-1.0/mappings'},
}


@dataclasses.dataclass(frozen=True)
class ShiftConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'shift'`.

  Attributes:
    mappings: folder `mappings` of ObjectNet, if `source` is its folder
      `images`.
  """
  name: Literal['shift'] = 'shift'
  mappings: str = ''

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return metrics.ACCURACY, classification.TOP_K_ACCURACY

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open_split(
        self.split, self.source, batch_size=self.batch_size)
    context.check_classes(split, single=True)
    found = self._model_classes(split.dataset, context)
    longest = max(map(len, found.values()))
    columns = np.array([[*group, *group[:1] * (longest - len(group))]
                        for group in found.values()])
    position = np.full(split.dataset.num_classes, -1)
    position[list(found)] = np.arange(len(found))

    def batch_means(
        params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
      logits = context.predict(params, batch)['logits'][:, columns].max(axis=-1)
      labels = jnp.asarray(position)[batch['label']]
      mask = batch['mask'] * (labels >= 0)
      return {f'accuracy_top_{k}' if k > 1 else 'accuracy':
              metrics.Mean.from_model_output(metrics.top_k_correct(
                  logits, labels, k=k), mask)
              for k in (1, classification.TOP_K) if k < max(2, len(found))}

    return passes.mean(split, batch_means)

  def _model_classes(
      self, dataset: data.Dataset, context: evaluator.Context,
  ) -> dict[int, list[int]]:
    """Returns the model's classes for each dataset class that has any."""
    names = dataset.class_names or ()
    matches = (objectnet_classes(
        epath.Path(self.mappings), sorted(context.train_data.class_names or ()))
               if self.mappings else {name: [name] for name in names})
    groups = {i: matches[name] for i, name in enumerate(names)
              if name in matches}
    if not groups:
      raise ValueError(
          f'{context.where} matches classes by name, but no class of '
          f'{dataset.title} can be matched: '
          f'{classes.shorten(names) or "no names"}. Use data with the class '
          'names of the model.')
    needed = names if not self.mappings else sorted(
        set().union(*groups.values()))
    numbers, note = classes.match(
        classes.Classes('the data', len(needed), needed, dataset.title),
        context.classes, subset=True)
    context.note(note)
    index = dict(zip(needed, numbers or range(len(needed))))
    expected = known_datasets.facts(self.source).num_present
    if expected and len(groups) > expected:  # TFDS declares all 1,000 classes.
      present = np.unique(data.class_labels(
          dataset, setting=context.where)).tolist()
      if len(present) != expected:
        raise ValueError(
            f'{context.where}: {dataset.title} has images of {len(present)} '
            f'classes, not of {expected}. Evaluate on all images: omit '
            'split.')
      groups = {i: groups[i] for i in present}
    return {i: [index[name] for name in group] for i, group in groups.items()}


def objectnet_classes(
    folder: epath.Path, synsets: Sequence[str],
) -> dict[str, list[str]]:
  """Returns the ImageNet synsets of each ObjectNet image folder that has any.

  Args:
    folder: `mappings` of the release.
    synsets: the synsets of ImageNet, sorted.

  Raises:
    ValueError: if a file is missing or refers to an unknown class.
  """
  def read(name: str) -> Any:
    return untrusted.parse_json(untrusted.read_text(folder / name))

  if len(synsets) != _IMAGENET_CLASSES:
    raise ValueError(
        f'ObjectNet is mapped to the {_IMAGENET_CLASSES:,} classes of '
        f'ImageNet, but the model has {len(synsets):,} class names.')
  try:
    # Lines of the file of ImageNet's class descriptions, by class index.
    lines = untrusted.read_text(
        folder / 'imagenet_to_label_2012_v2').splitlines()
    synset_of = {lines[line].strip(): synsets[int(index)] for index, line in
                 read('pytorch_to_imagenet_2012_id.json').items()}
    descriptions = read('objectnet_to_imagenet_1k.json')
    return {name: [synset_of[text] for text in descriptions[label].split('; ')]
            for name, label in read('folder_to_objectnet_label.json').items()
            if label in descriptions}
  except (OSError, ValueError, KeyError, IndexError, AttributeError) as error:
    raise ValueError(
        f'Cannot read the classes of ObjectNet in {folder}: '
        f'{type(error).__name__}: {error}. Expected the folder `mappings` of '
        'the ObjectNet release.') from error
