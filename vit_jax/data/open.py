"""Opens the dataset of a config section without decoding images."""

import dataclasses

import numpy as np

from vit_jax import registry
from vit_jax.data import config as data_config
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import mixture
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import open_source
from vit_jax.data.sources import protocol
from vit_jax.data.splits import class_sampling
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets
from vit_jax.exceptions import UserError

# Reading a label of TFDS files takes 20 microseconds.
_MAX_LABELS = 2**16


def open_dataset(
    config: data_config.DataConfig, *, split: str | None = None,
    source: str | None = None, data_optional: bool = False,
    labelled: bool = False) -> dataset_lib.Dataset:
  """Opens a split; decodes no image.

  Reads all labels for `examples_per_class`, and of small parts of a split.

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
    UserError: if there is no such dataset or split.
  """
  name = ' + '.join(config.sources) if source is None else source
  # Files that are not trained on need no part for training.
  whole = split == '' and source not in (None, *config.sources)
  opened = _open_splits(
      config, source, whole=whole, data_optional=data_optional)
  if labelled and opened.no_labels:
    raise UserError(_advise_labels(opened.no_labels))
  wanted = split_strings.expand_all(
      config.split if split is None else split or opened.eval_split,
      opened.splits)
  is_mixed = source is None and bool(config.mixture)
  if is_mixed:
    mixture.mixer().check_split(config.mixture, wanted)
  # Splits of tables that have no labels cannot be read at all.
  split_strings.check_labelled(wanted, {*opened.unlabelled} - (
      set() if labelled else {*opened.splits}), name=name)
  examples = split_strings.select_split(opened, wanted, name=name)
  if source is None and config.val_source and split_strings.names(
      wanted) == [split_strings.VAL]:
    name = config.val_source
  elif whole and wanted == 'train':
    wanted = 'all'
  dataset = dataset_lib.Dataset(
      name=name, split=wanted, source=examples,
      **{**vars(opened), 'splits': tuple(opened.splits)})
  own_split = split is None and source is None
  if config.exclude and source is None and not opened.planned:
    dataset = registry.load(registry.EXCLUDE)(
        dataset, config.exclude, trained=split_strings.expand_all(
            config.split, opened.splits), may_match_none=not own_split)
  if own_split:
    dataset = _reduce(dataset, config)
    if is_mixed or len(dataset) < sum(
        len(opened.splits[part]) for part in split_strings.names(wanted)):
      dataset = dataclasses.replace(dataset, description='; '.join(filter(
          None, [opened.description, _describe_untrained(dataset)])))
  columns_lib.release_memory()
  return dataset


def _open_splits(
    config: data_config.DataConfig, source: str | None, *, whole: bool,
    data_optional: bool) -> protocol.DatasetSplits:
  """Opens the splits of a source, by default of those that are trained on."""
  if source is None and config.mixture:
    return mixture.mixer().unite(
        config.mixture, {one: _open_splits(
            config, one, whole=whole, data_optional=data_optional)
                         for one in config.sources},
        group=config.group, divided=config.divided_groups)
  try:
    return open_source.open_splits(config, source=source, whole=whole)
  except (UserError, OSError):
    open_planned = registry.optional(registry.PLANNED)
    planned = open_planned(source or config.source) if (
        data_optional and open_planned) else None
    if planned is None:
      raise
    return planned


def _advise_labels(no_labels: str) -> str:
  """Returns the error of images without labels, given why they have none."""
  if no_labels == protocol.NO_IMAGE_LABELS:
    return (f'{no_labels} To train on masks, use configs/segmentation.py '
            '(docs/segmentation.md).')
  gap = '\n' if '\n' in no_labels else ' '  # Flags are pasted.
  return (f'{no_labels}{gap}`predict` and `features` need no labels, and '
          'neither do objectives such as mae (docs/data.md).')


def _reduce(
    dataset: dataset_lib.Dataset, config: data_config.DataConfig,
) -> dataset_lib.Dataset:
  """Applies `examples_per_class`, `num_examples` or `fraction`."""
  if config.examples_per_class is not None:
    return class_sampling.draw_per_class(
        dataset, config.examples_per_class, allow_fewer=config.allow_fewer,
        seeds=(config.sample_seed,))[0]
  count = config.num_examples
  if config.fraction is not None:
    count = max(1, round(config.fraction * len(dataset)))
  if count is None:
    return dataset
  return dataclasses.replace(dataset, source=subsets.select_random(
      dataset.source, count, name=dataset.title, planned=dataset.planned))


def _describe_untrained(dataset: dataset_lib.Dataset) -> str:
  """Returns a note that names classes without an image in a part of a split.

  Returns '' for large parts, which hardly miss a class.
  """
  if (dataset.planned or dataset.kind != 'single' or dataset.is_unlabelled
      or len(dataset) > _MAX_LABELS):
    return ''
  missing = np.setdiff1d(np.arange(dataset.num_classes), np.fromiter(
      split_strings.labels(dataset.source), np.int64, len(dataset)))
  names = dataset.names_or_indices
  return (f'{len(missing):,} of {dataset.num_classes:,} classes have no image '
          f'in these {len(dataset):,}: '
          f'{files.shorten((names[i] for i in missing), 8)}') * bool(
              missing.size)
