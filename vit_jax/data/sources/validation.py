"""Adds the images of `data.val_source` to a dataset, as its split `val`."""

import dataclasses

from vit_jax import classes
from vit_jax.data import config as data_config
from vit_jax.data import mixture
from vit_jax.data.sources import protocol
from vit_jax.data.splits import groups
from vit_jax.data.splits import split_strings

_REMEDY = 'Use validation data with labels of the same kind and names.'


def add(
    trained: protocol.DatasetSplits, added: protocol.DatasetSplits,
    config: data_config.DataConfig,
) -> protocol.DatasetSplits:
  """Returns the training data with `added` as `val`, its evaluation split.

  Classes are matched by name; `added` may lack some.

  Raises:
    ValueError: if labels are of another kind, a class is not in `trained`, or a
      group is in both.
  """
  ours = trained.as_classes('data.source', config.source)
  theirs = added.as_classes('data.val_source', config.val_source)
  source = added.splits[added.eval_split]
  if config.own_source(config.val_source) is None and (
      len(added.splits) == 1):
    raise ValueError(
        f'data.val_source ({config.val_source}) is the data that is trained '
        'on. Leave it out, and a part of the images is held out.')
  if trained.kind != added.kind:
    raise ValueError(
        f'data.val_source ({config.val_source}) has labels of another kind '
        f'than data.source ({config.source}). {_REMEDY}')
  if trained.targets or not (ours.names and theirs.names):
    classes.match(theirs, ours, remedy=_REMEDY)
  else:
    source = mixture.renumber(source, theirs, ours, remedy=_REMEDY)
  splits = {**trained.splits, split_strings.VAL: source}
  where = f'{config.source} and {config.val_source}'
  groups.check_all_have(splits, where=where, divided=config.divided_groups)
  notes = groups.check_sources(
      splits, where=where, divided=config.divided_groups)
  return dataclasses.replace(
      trained, eval_split=split_strings.VAL, splits=splits,
      unlabelled=tuple({*trained.unlabelled} - {split_strings.VAL}),
      without_images=trained.without_images + added.without_images,
      description='; '.join(filter(None, [
          trained.description,
          f'val: {len(source):,} images of {config.val_source}', *notes,
          added.without_images_note])))
