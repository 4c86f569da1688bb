"""Accuracy on a dataset with some of the model's classes, matched by name.

ImageNet-V2, -A, -R and -Sketch name their classes by WordNet synsets, such as
n01440764. The prediction is the class of the dataset with the largest logit.
ImageNet-A and -R have 200 of the 1,000 classes (arXiv 1907.07174, 2006.16241).

113 classes of ObjectNet each correspond to one or more ImageNet classes, of
which the largest logit counts; other images are left out. The correspondence is
read from the folder `mappings` of the release (https://objectnet.dev), whose
ImageNet indices are those of the sorted synsets.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Literal

from etils import epath
import jax.numpy as jnp
import numpy as np

from vit_jax import metrics
from vit_jax import types
from vit_jax import untrusted
from vit_jax.data import known_datasets
from vit_jax.evals import evaluator
from vit_jax.evals import passes

_SHOWN = 5  # Unknown classes in an error message.
_TOP_K = 5
_IMAGENET_CLASSES = 1000


@dataclasses.dataclass(frozen=True)
class ShiftConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'shift'`.

  An empty `split` means all examples of the dataset.

  Attributes:
    mappings: folder `mappings` of ObjectNet, if `source` is its folder
      `images`.
  """
  name: Literal['shift'] = 'shift'
  mappings: str = ''

  def metrics(self) -> dict[str, evaluator.Mode]:
    """See `EvaluatorConfig`."""
    return {'accuracy': 'max', f'accuracy_top_{_TOP_K}': 'max'}

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    """See `EvaluatorConfig`."""
    split = context.open_split(
        self.split or 'all', self.source, batch_size=self.batch_size)
    context.check_classes(split, single=True)
    named, names = split.class_names or (), context.class_names or ()
    matches: Mapping[str, Sequence[str]] = (
        objectnet_classes(epath.Path(self.mappings), sorted(names))
        if self.mappings else {name: (name,) for name in named})
    classes = [i for i, name in enumerate(named) if name in matches]
    expected = known_datasets.facts(self.source).num_present
    if expected and len(named) > expected:  # TFDS declares all of ImageNet's.
      assert split.read_labels is not None
      classes = np.unique(split.read_labels()).tolist()
      if len(classes) != expected:
        raise ValueError(
            f'{context.where}: {split.name} has images of {len(classes)} '
            f'classes, not of {expected}. Evaluate on all images: leave split '
            'out.')
    matched = [matches[named[i]] for i in classes]
    unknown = [name for group in matched for name in group if name not in names]
    if unknown or not classes:
      raise ValueError(
          f'{context.where} compares classes by name, but '
          + (f'{len(unknown)} classes of {split.name} are not among those of '
             f'{context.train_name}: {", ".join(unknown[:_SHOWN])}'
             + ', ...' * (len(unknown) > _SHOWN) if unknown else
             f'none of {split.name} is known')
          + f'. {context.train_name} has '
          + (f'{", ".join(names[:2])}, ...' if names else 'no class names')
          + ' Use data whose classes are named alike, such as the synsets of '
          'imagenet2012.')
    # Rows are filled up with their first class.
    columns = np.array([[names.index(group[min(i, len(group) - 1)])
                         for i in range(max(map(len, matched)))]
                        for group in matched])
    position = np.full(split.num_classes, -1)
    position[classes] = np.arange(len(classes))

    def batch_means(
        params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
      logits = context.predict(params, batch)['logits'][:, columns].max(axis=-1)
      labels = jnp.asarray(position)[batch['label']]
      mask = batch['mask'] * (labels >= 0)
      return {f'accuracy_top_{k}' if k > 1 else 'accuracy':
              metrics.Mean.from_model_output(metrics.top_k_correct(
                  logits, labels, k=k), mask)
              for k in (1, _TOP_K) if k < max(2, len(classes))}

    return passes.mean(split, batch_means)


def objectnet_classes(
    folder: epath.Path, synsets: Sequence[str],
) -> dict[str, list[str]]:
  """Returns the synsets of each of ObjectNet's image folders that has some.

  Args:
    folder: `mappings` of the release.
    synsets: those of ImageNet, sorted.

  Raises:
    ValueError: if a file is missing or refers to an unknown class.
  """
  def read(name: str) -> Any:
    return untrusted.parse_json(untrusted.read_text(folder / name))

  if len(synsets) != _IMAGENET_CLASSES:
    raise ValueError(
        f'The mapping of ObjectNet is to the {_IMAGENET_CLASSES:,} classes of '
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
        'its release.') from error
