"""Opens what the section `data` names: a split, its facts, its examples.

No image is decoded.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax.data import config as config_lib
from vit_jax.data.images import cache as cache_lib
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import protocol
from vit_jax.data.sources import registry
from vit_jax.data.splits import class_sampling as class_sampling_lib
from vit_jax.data.splits import exclusion as exclusion_lib
from vit_jax.data.splits import random_subsets
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
  """A split, opened: facts, and random access to undecoded examples.

  Attributes:
    name: as `data.source` gives it.
    split: as a split string.
    source: `source[i]` is {'image': bytes | uint8 array, 'label': int | list}.
    num_classes: of the whole data set.
    class_names: in the order of the class indices, where known.
    multi_label: labels are lists of class indices.
    eval_split: the split of this data set that published results are on.
    targets: names of the numbers that labels are, if they are no classes.
    description: how its files were understood, in words; perhaps ''.
    excluded: what `data.exclude` left out.
    splits: all that the data set has.
    cache: what of it is held in memory; `data.cache_mib` says how much.
  """
  name: str
  split: str
  source: protocol.Source
  num_classes: int
  class_names: tuple[str, ...] | None
  multi_label: bool
  eval_split: str
  targets: tuple[str, ...] = ()
  description: str = ''
  excluded: exclusion_lib.Excluded | None = None
  splits: tuple[str, ...] = ()
  # Not taken over by `replace`: the numbers of the examples are others then.
  cache: cache_lib.Cache = dataclasses.field(
      init=False, default_factory=cache_lib.Cache)

  @property
  def num_examples(self) -> int:
    return len(self.source)

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self.source[index]


def open_dataset(
    config: config_lib.DataConfig, *, split: str | None = None,
    source: str | None = None, expected: bool = False,
) -> Dataset:
  """Opens a data set; reads no images (labels, if `examples_per_class`).

  Args:
    config: the section.
    split: instead of the section's; '' is the one that results are published
      on. It is opened whole: `exclude`, `examples_per_class`, `num_examples`
      and `fraction` thin out the section's own split alone, so that the
      evaluation of a small training set is on all test images.
    source: instead of the section's; opened whole as well.
    expected: takes the sizes of a public data set from the table, without its
      files: enough to plan and to compile, not to read.

  Raises:
    ValueError: if there is no such data set or split, with what to do.
  """
  name = config.source if source is None else source
  if expected and name not in ('digits', 'shapes'):
    opened = registry.open_planned(name)
  else:
    label_config = columns_lib.LabelConfig(config.target, config.table)
    if source is None:
      registry.check_label_config(name, label_config)
    opened = registry.open_source(
        name, data_dir=config.data_dir, shapes_config=config.shapes,
        size=config.size, labels=label_config)
  wanted = config.split if split is None else split or opened.eval_split
  examples = split_strings.select_split(opened, wanted, name=name)
  excluded = None
  if split is source is None:
    if config.exclude and not expected:  # A plan is of the whole.
      examples, excluded = exclusion_lib.exclude(
          examples, config.exclude, name=f'{name} {wanted}')
    examples = _thin_out(
        examples, config, name=f'{name} {wanted}', expected=expected,
        targets=bool(opened.targets))
  return Dataset(
      name=name, split=wanted, source=examples, num_classes=opened.num_classes,
      class_names=opened.class_names, multi_label=opened.multi_label,
      eval_split=opened.eval_split, targets=opened.targets,
      description=opened.description, excluded=excluded,
      splits=tuple(opened.splits))


def open_splits(config: config_lib.DataConfig) -> protocol.DatasetSplits:
  """Opens all splits of what the section names, with nothing left out.

  Some may have no examples: of a handful of files, none may be held out.
  """
  label_config = columns_lib.LabelConfig(config.target, config.table)
  registry.check_label_config(config.source, label_config)
  return registry.open_source(
      config.source, data_dir=config.data_dir, shapes_config=config.shapes,
      size=config.size, labels=label_config)


def _thin_out(
    examples: protocol.Source, config: config_lib.DataConfig, *, name: str,
    expected: bool, targets: bool,
) -> protocol.Source:
  """Returns those of the section's split that it wants."""
  if config.examples_per_class is not None:
    if targets:
      raise ValueError(
          f'examples_per_class is {config.examples_per_class}, but the labels '
          f'of {name} are numbers to predict. Use num_examples or fraction.')
    return split_strings.select_per_class(
        examples, config.examples_per_class, name=name)
  count = config.num_examples
  if config.fraction is not None:
    count = max(1, round(config.fraction * len(examples)))
  if count is None:
    return examples
  if expected:  # A plan asks how many, not which.
    random_subsets.check_count(count, len(examples), name=name)
    return split_strings.Concatenated(((examples, 0, count),))
  return random_subsets.select_random(examples, count, name=name)


def check_training(config: config_lib.DataConfig, dataset: Dataset) -> None:
  """Raises if a data set cannot be trained on in the way that is asked for."""
  class_sampling_lib.check(
      config.sampling, multi_label=dataset.multi_label,
      targets=dataset.targets, name=dataset.name)


def class_labels(
    dataset: Dataset, *, asked: str) -> Int[np.ndarray, 'examples']:
  """Returns the class of each example; see `sampling.class_labels`."""
  return class_sampling_lib.class_labels(
      dataset.source, num_classes=dataset.num_classes,
      name=f'{dataset.name} {dataset.split}', asked=asked)


def draw_per_class(
    dataset: Dataset, count: int, *, seeds: Sequence[int],
) -> tuple[Dataset, Int[np.ndarray, 'seeds examples']]:
  """Returns the data set of several draws; see `splits.draw_per_class`."""
  subset, ranks = split_strings.draw_per_class(
      dataset.source, count, name=f'{dataset.name} {dataset.split}',
      seeds=seeds)
  return dataclasses.replace(dataset, source=subset), ranks
