"""Opens the dataset of a config section without decoding images."""

from collections.abc import Sequence
import contextlib
import dataclasses
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax import classes as classes_lib
from vit_jax import exceptions
from vit_jax.data import config as data_config
from vit_jax.data import mixture
from vit_jax.data import renumbered
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import open_source
from vit_jax.data.sources import protocol
from vit_jax.data.splits import class_sampling
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets

# Reading a label of TFDS files takes 20 microseconds.
_MAX_LABELS = 2**16
IGNORED = 255  # Value of mask pixels without a class, once read.


class Cache(dict[int, dict[str, Any]]):
  """Decoded examples by index, before augmentation; never evicts.

  A copy in another process starts empty.
  """
  num_bytes = 0  # Size of the pixels. Threads may count an example twice.

  def __reduce__(self):
    return Cache, ()


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset(protocol.Metadata):
  """An open split: metadata, and random access to undecoded examples.

  Attributes:
    name: `data.source`.
    split: the split string.
    source: `source[i]` is {'image': bytes | uint8 array, 'label': int | list}.
    excluded: summary of `data.exclude`; '' if it is not set.
    masks: whether batches contain the segmentation masks; see `with_masks`.
    ignored: value of mask pixels without a class if the classes are those of
      the masks, which are then checked; it is read as `IGNORED`.
    splits: names of all splits.
    cache: decoded images, so that small datasets are decoded once.
  """
  name: str
  split: str
  source: protocol.Source
  excluded: str = ''
  masks: bool = False
  ignored: int | None = None
  splits: tuple[str, ...] = ()
  # Not copied by `dataclasses.replace`, which may change the indices.
  cache: Cache = dataclasses.field(init=False, default_factory=Cache)

  @property
  def num_examples(self) -> int:
    return len(self.source)

  @property
  def title(self) -> str:
    """Dataset and split, for messages."""
    return f'{self.name} {self.split}'

  @property
  def classes(self) -> classes_lib.Classes:
    """Names of the classes or regression targets, with their order."""
    return self.as_classes('the data', self.name)

  @property
  def is_unlabelled(self) -> bool:
    """Whether its images have no labels."""
    return bool(self.no_labels) or bool(
        {*split_strings.names(self.split)} & {*self.unlabelled})

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self.source[index]

  def naming(
      self, index: int, *, kind: type[ValueError] = ValueError,
  ) -> contextlib.AbstractContextManager[None]:
    """Adds the example to errors, because Grain does not.

    Errors of memory or of the file system, other than a missing file, become a
    plain ValueError, all others a `kind`.
    """
    def rewrite(error: Exception) -> ValueError:
      raised = (ValueError if isinstance(error, (OSError, MemoryError))
                and not isinstance(error, FileNotFoundError) else kind)
      text = str(error) if isinstance(error, (OSError, ValueError)) else (
          f'{type(error).__name__}: {error}')
      return raised(
          f'Example {index} of {self.name}, split {self.split!r} '
          f'({self.source.key(index)}): {text}')

    return exceptions.replaced_by(rewrite)

  def contains_split_of(self, other: 'Dataset') -> bool:
    """Whether this selection has a whole split that `other` has a part of."""
    return self.name == other.name and not {
        *split_strings.parts(self.split)}.isdisjoint(
            split_strings.names(other.split))

  def overlaps(self, other: 'Dataset') -> bool:
    """Whether two selections of a dataset share an example, by its key.

    Keys of numbered sources include the dataset's name; keys of a folder are
    relative to its path. Data published under two names counts as different.
    """
    ours, theirs = (
        subsets.hash_keys(
            one.source, prefix=files.identity(one.name) + ' ')
        for one in (self, other))
    return bool(np.isin(ours, theirs).any())


def open_dataset(
    config: data_config.DataConfig, *, split: str | None = None,
    source: str | None = None, data_optional: bool = False,
    labelled: bool = False,
) -> Dataset:
  """Opens a split; reads labels only for `examples_per_class`.

  Args:
    config: the section. `examples_per_class`, `num_examples` and `fraction`
      apply to its own split and source only, `exclude` to every part of them.
    split: overrides the section's split; '' selects the split of published
      results, or all images if another `source` has no splits; 'all' every
      split.
    source: overrides the section's source.
    data_optional: whether sizes from the table of known datasets may replace
      data that are not available; enough to plan and compile.
    labelled: whether images without labels are an error.

  Raises:
    ValueError: if there is no such dataset or split.
  """
  name = ' + '.join(config.sources) if source is None else source
  # Files that are not trained on need no part for training.
  whole = split == '' and source not in (None, *config.sources)
  mixed = source is None and config.mixture

  def open_splits(source: str | None) -> protocol.DatasetSplits:
    try:
      return open_source.open_splits(config, source=source, whole=whole)
    except (ValueError, OSError):
      planned = open_source.open_planned(
          source or config.source) if data_optional else None
      if planned is None:
        raise
      return planned

  opened = open_splits(source) if not mixed else mixture.unite(
      config.mixture, {one: open_splits(one) for one in config.sources},
      group=config.group, divided=config.divided_groups)
  if labelled and opened.no_labels:
    raise ValueError(_advise_labels(opened.no_labels))
  wanted = split_strings.expand_all(
      config.split if split is None else split or opened.eval_split,
      opened.splits)
  if mixed and '[' in wanted:
    raise ValueError(
        f'The split {wanted!r} is a part of data.mixture, whose examples are '
        'in the order of its sources. Evaluate on a part of one source: '
        f'--config.evals.NAME.source={config.sources[0]}.')
  # Splits of tables that have no labels cannot be read at all.
  split_strings.check_labelled(wanted, {*opened.unlabelled} - (
      set() if labelled else {*opened.splits}), name=name)
  examples = split_strings.select_split(opened, wanted, name=name)
  if source is None and config.val_source and split_strings.names(
      wanted) == [split_strings.VAL]:
    name = config.val_source
  elif whole and wanted == 'train':
    wanted = 'all'
  excluded, own_split = '', split is None and source is None
  # Also from the neighbours of k-NN, and others that are fitted to.
  if config.exclude and source is None and not opened.planned and (
      {*split_strings.names(wanted)} <= {*split_strings.names(
          split_strings.expand_all(config.split, opened.splits))}):
    examples, excluded = subsets.exclude(
        examples, config.exclude, name=f'{name} {wanted}',
        may_match_none=not own_split)
  notes = [opened.description]
  if own_split:
    examples = _reduce(examples, config, opened, name=f'{name} {wanted}')
    if bool(mixed) or len(examples) < sum(
        len(opened.splits[part]) for part in split_strings.names(wanted)):
      notes.append(_describe_untrained(examples, opened, wanted))
  columns_lib.release_memory()
  return Dataset(
      name=name, split=wanted, source=examples, excluded=excluded,
      **{**vars(opened), 'splits': tuple(opened.splits),
         'description': '; '.join(filter(None, notes))})


def _advise_labels(no_labels: str) -> str:
  """Returns the error of images without labels, given why they have none."""
  if no_labels == protocol.NO_IMAGE_LABELS:
    return (f'{no_labels} To train on masks, use configs/segmentation.py '
            '(docs/segmentation.md).')
  gap = '\n' if '\n' in no_labels else ' '  # Flags are pasted.
  return (f'{no_labels}{gap}To train without labels, use an objective such as '
          'mae (docs/data.md).')


def match_classes(
    dataset: Dataset, classes: classes_lib.Classes, *, subset: bool = False,
) -> tuple[Dataset, str]:
  """Returns a dataset numbered as `classes`, and a line to print.

  Raises:
    ValueError: if they do not fit; see `classes.match`.
  """
  if dataset.no_labels and not classes.names:
    return dataset, ''
  numbers, line = classes_lib.match(dataset.classes, classes, subset=subset)
  if numbers:
    dataset = dataclasses.replace(
        dataset, num_classes=classes.count, class_names=tuple(classes.names),
        source=renumbered.renumber(dataset.source, numbers))
  return dataset, line


def with_classes(
    dataset: Dataset, classes: classes_lib.Classes, *, subset: bool = False,
) -> Dataset:
  """Returns a dataset numbered as `classes` or, unless they fit, as it is.

  Evaluators that use the head raise the error; others need not.
  """
  with contextlib.suppress(ValueError):
    return match_classes(dataset, classes, subset=subset)[0]
  return dataset


def _reduce(
    examples: protocol.Source, config: data_config.DataConfig,
    opened: protocol.DatasetSplits, *, name: str,
) -> protocol.Source:
  """Applies `examples_per_class`, `num_examples` or `fraction`."""
  if config.examples_per_class is not None:
    return class_sampling.draw_per_class(
        examples, config.examples_per_class, num_classes=opened.num_classes,
        name=name, allow_fewer=config.allow_fewer,
        seeds=(config.sample_seed,))[0]
  count = config.num_examples
  if config.fraction is not None:
    count = max(1, round(config.fraction * len(examples)))
  if count is None:
    return examples
  if opened.planned:  # There are no keys to hash.
    subsets.check_count(count, len(examples), name=name)
    return split_strings.Subset(((examples, range(count)),))
  return subsets.select_random(examples, count, name=name)


def _describe_untrained(
    examples: protocol.Source, opened: protocol.DatasetSplits, split: str,
) -> str:
  """Returns a note that names classes without an image in a part of a split.

  Returns '' for large parts, which hardly miss a class.
  """
  if (opened.planned or opened.kind != 'single' or len(examples) > _MAX_LABELS
      or {*split_strings.names(split)} & {*opened.unlabelled}):
    return ''
  missing = np.setdiff1d(np.arange(opened.num_classes), np.fromiter(
      split_strings.labels(examples), np.int64, len(examples)))
  names = opened.class_names or range(opened.num_classes)
  return (f'{len(missing):,} of {opened.num_classes:,} classes have no image '
          f'in these {len(examples):,}: '
          f'{files.shorten((names[i] for i in missing), 8)}') * bool(
              missing.size)


def with_masks(
    dataset: Dataset, classes: Sequence[str] = (), *, ignored: int = IGNORED,
) -> Dataset:
  """Returns the dataset with `segmentation` in its batches.

  Args:
    dataset: images with masks.
    classes: names of the mask values from 0, which become the classes of the
      dataset in place of the labels of images; () keeps these.
    ignored: value of mask pixels without a class, with `classes`.

  Raises:
    ValueError: if there are no masks.
  """
  if not dataset.planned and protocol.SEGMENTATION not in dataset[0]:
    raise ValueError(
        f'{dataset.name} has no segmentation masks. Use a folder with images/ '
        'and masks/, a TFDS dataset with the feature segmentation_mask, such '
        'as oxford_iiit_pet, or shapes.')
  if not classes:
    return dataclasses.replace(dataset, masks=True)
  return dataclasses.replace(
      dataset, masks=True, ignored=ignored, num_classes=len(classes),
      class_names=tuple(classes), multi_label=False, targets=(),
      no_labels=protocol.NO_IMAGE_LABELS)


def class_labels(
    dataset: Dataset, *, setting: str) -> Int[np.ndarray, 'examples']:
  """Returns the class of each example; see `class_sampling.class_labels`."""
  return class_sampling.class_labels(
      dataset.source, num_classes=dataset.num_classes,
      name=dataset.title, setting=setting)
