"""Adds the images of `data.val_source` to a dataset, as its split `val`."""

import dataclasses

from vit_jax import classes
from vit_jax.data import config as data_config
from vit_jax.data import renumbered
from vit_jax.data.sources import protocol
from vit_jax.data.splits import groups
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError


def add(
    trained: protocol.DatasetSplits, added: protocol.DatasetSplits,
    config: data_config.DataConfig,
) -> protocol.DatasetSplits:
  """Returns the training data with `added` as `val`, its evaluation split.

  Classes are matched by name; `added` may lack some.

  Raises:
    UserError: if labels are of another kind, a class is not in `trained`, or a
      group is in both.
  """
  source = added.splits[added.eval_split]
  if config.own_source(config.val_source) is None and (
      len(added.splits) == 1):
    raise UserError(
        f'data.val_source ({config.val_source}) is the data that is trained '
        'on. Leave it out, and a part of the images is held out.')
  if trained.kind == 'single' and trained.num_classes < 2:
    raise UserError(
        f'data.source ({config.source}) has a single class; a classifier needs '
        'two. If the classes lie deeper, name their folder.')
  if trained.kind != added.kind:
    raise UserError(
        f'data.val_source ({config.val_source}) has labels of the kind '
        f'{added.kind}, but data.source ({config.source}) {trained.kind}. Use '
        'validation data with labels of the same kind and names.')
  numbers, line = classes.match(
      added.as_classes('the validation data', config.val_source),
      trained.as_classes('the training data', config.source), subset=True)
  splits = {**trained.splits, split_strings.VAL: renumbered.renumber(
      source, numbers) if numbers else source}
  where = f'{config.source} and {config.val_source}'
  groups.check_all_have(splits, where=where, divided=config.divided_groups)
  notes = groups.check_undivided(
      splits, where=where, divided=config.divided_groups)
  return dataclasses.replace(
      trained, eval_split=split_strings.VAL, splits=splits,
      fields={name: trained.fields[name] for name in trained.fields
              if name in added.fields},
      unlabelled=tuple({*trained.unlabelled} - {split_strings.VAL}),
      without_images=trained.without_images + added.without_images,
      description='; '.join(filter(None, [
          trained.description,
          f'val: {len(source):,} images of {config.val_source}', *notes,
          line.removeprefix('note: ') * (trained.kind != 'none'),
          added.without_images_note])))
