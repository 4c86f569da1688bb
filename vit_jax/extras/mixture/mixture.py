"""Mixtures of datasets for training (`data.mixture`).

    draw p of the endless stream -> source k, and draw r of its shuffled epochs

Of the first n draws, floor(n w_1 / W) are of source 1, where W is the sum of
the weights; the other sources share the remaining draws in the same way. So
every batch has each source in its share, a draw follows from its number alone,
and the counts of a run need no state. Weighted by the numbers of examples, an
epoch is every example once. `grain.MapDataset.mix` would round the weights (3
and 7 to 100 and 233), and its window shuffle cannot start from a seed above
2**32.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import fractions
import math

import numpy as np

from vit_jax import classes
from vit_jax.data import config as data_config
from vit_jax.data import mixture as mixture_lib
from vit_jax.data import pipeline
from vit_jax.data import renumbered
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError

Entries = mixture_lib.Entries

# Settings that choose training images, in place of which there is a mixture.
_OF_SOURCE = ('source', 'split', 'val_source', 'exclude', 'examples_per_class',
              'num_examples', 'fraction', 'sampling')


def check(config: data_config.DataConfig) -> None:
  """Raises a `UserError` for settings that contradict each other."""
  for name in _OF_SOURCE:
    value = getattr(config, name)
    expected = '' if name == 'source' else getattr(data_config.DataConfig, name)
    if value != expected:
      raise UserError(
          f'{name} is {value!r}, but mixture chooses the training images. '
          f'Leave it out, or set --config.data.{name}={expected}.')
  entries, spelled = config.mixture, dict[str, str]()
  for entry in entries:
    first = spelled.setdefault(files.identity(entry.source), entry.source)
    if first != entry.source:
      raise UserError(
          f'mixture names the same data {first!r} and {entry.source!r}, so it '
          'could be evaluated on images that are trained on. Use one of them.')
  names = [*map(str, entries)]
  if len({*names}) < len(names):
    raise UserError(
        f'mixture repeats an entry ({", ".join(names)}). Keep one, with more '
        'weight.')
  if len({entry.weight is None for entry in entries}) > 1:
    raise UserError(
        f'mixture has weights for some entries only ({", ".join(names)}). Give '
        'all of them one, or none to weight them by their examples.')


def check_split(entries: Entries, split: str) -> None:
  """Raises a `UserError` for a part of a split of a mixture."""
  if '[' in split:
    raise UserError(
        f'The split {split!r} is a part of data.mixture, whose examples are '
        'in the order of its sources. Evaluate on a part of one source: '
        f'--config.evals.NAME.source={entries[0].source}.')


# ------------------------------------------------------------- order of draws


def num_drawn(weights: Sequence[int], draws: int) -> list[int]:
  """Returns how many of the first draws are of each source."""
  counts, left = [], sum(weights)
  for weight in weights:
    counts.append(draws * weight // left)
    draws, left = draws - counts[-1], left - weight
  return counts


def order(
    entries: Entries, source: protocol.Source, *, seed: int, batch_size: int,
) -> Callable[[int, int], int]:
  """Returns the function from a draw, and any number, to an example's index.

  Args:
    entries: the mixture.
    source: its examples, the split `train` of `unite`.
    seed: seed of the order.
    batch_size: number of draws that are shuffled among each other, because
      mixup blends neighbours.
  """
  lengths = _lengths(source)
  weights = _weights(entries, lengths)
  starts = np.cumsum([0, *lengths]).tolist()
  epochs = [pipeline.shuffled_epochs(length, seed=int(
      np.random.SeedSequence([seed, k]).generate_state(1)[0]))
            for k, length in enumerate(lengths)]

  def index_of(draw: int, shuffled: int) -> int:
    del shuffled  # An epoch of all examples.
    batch, place = divmod(draw, batch_size)
    # Grain's shuffle is slow for few elements.
    places = np.random.default_rng([seed, batch]).permutation(batch_size)
    draw = batch * batch_size + int(places[place])
    before, after = (num_drawn(weights, draw + i) for i in (0, 1))
    k = next(k for k, count in enumerate(before) if count < after[k])
    return starts[k] + epochs[k][before[k]]

  return index_of


def _lengths(source: protocol.Source) -> list[int]:
  return [len(chosen) for _, chosen in getattr(source, 'parts', ())]


def _weights(entries: Entries, lengths: Sequence[int]) -> list[int]:
  """Returns the weights as whole numbers: 0.3 and 0.7 are 3 and 7."""
  exact = [fractions.Fraction(str(entry.weight or length))
           for entry, length in zip(entries, lengths)]
  scale = math.lcm(*(weight.denominator for weight in exact))
  return [int(weight * scale) for weight in exact]


def images_seen(
    entries: Entries, source: protocol.Source, images: int) -> dict[str, int]:
  """Returns how many of the first images of a run are of each entry.

  `source` is the split `train` of `unite`; without entries, any.
  """
  names = [entry.source.rstrip('/').rpartition('/')[2].partition(':')[0]
           for entry in entries]
  if len({*names}) < len(names):
    names = [*map(str, entries)]
  counts = num_drawn(_weights(entries, _lengths(source)), images)
  return dict(zip(names, counts))


def describe(
    entries: Entries, source: protocol.Source, images: int) -> list[str]:
  """Returns a line for each entry, for a run on so many images."""
  counts = images_seen(entries, source, images).values()
  return [f'{entry}: {length:,} images, {100 * count / images:.3g} % of '
          f'training, each seen {count / length:.3g} times'
          for entry, length, count in zip(entries, _lengths(source), counts)]


# -------------------------------------------------------- union of the sources


def unite(
    entries: Entries, opened: Mapping[str, protocol.DatasetSplits], *,
    group: str = '', divided: groups_lib.Divided = 'error',
) -> protocol.DatasetSplits:
  """Returns the splits `train`, the entries, and `test`, the evaluation splits.

  Its classes are those of all sources, by name. It has no labels unless all
  entries have labels of one kind; `no_labels` says why.

  Args:
    entries: the mixture.
    opened: its sources by name.
    group: `data.group`; at least one source has groups. Equal names in several
      sources are one group.
    divided: `data.divided_groups`.
  """
  first, no_labels = next(iter(opened.values())), _no_labels(entries, opened)
  names = () if no_labels else tuple(dict.fromkeys(
      name for one in opened.values() for name in one.class_names or ()))
  opened = {source: _in_mixture(one, source, classes.Classes(
      'data.mixture', len(names), names)) for source, one in opened.items()}
  train, trained = [], set[tuple[str, str]]()
  for entry in entries:
    one = opened[entry.source]
    split = split_strings.expand_all(entry.split, one.splits)
    trained |= {(entry.source, name) for name in split_strings.names(split)}
    train.append(split_strings.select_split(one, split, name=entry.source))
  # The evaluation splits that are not trained on.
  test = {source: one for source, one in opened.items()
          if one.splits.get(one.eval_split)
          and (source, one.eval_split) not in trained
          and (no_labels or one.eval_split not in one.unlabelled)}
  splits: dict[str, protocol.Source] = {
      name: split_strings.Subset(tuple(
          (part, range(len(part))) for part in parts))
      for name, parts in (('train', train), ('test', [
          one.splits[one.eval_split] for one in test.values()])) if parts}
  planned = any(one.planned for one in opened.values())
  groups_lib.check_present(
      splits, '' if planned else group, name='data.mixture')
  notes = groups_lib.check_undivided(
      splits, where='data.mixture', divided=divided)
  return dataclasses.replace(
      first, splits=splits,
      num_classes=1 if no_labels else len(names) or first.num_classes,
      class_names=names or None, targets=first.targets * (not no_labels),
      no_labels=no_labels, eval_split='test' if test else 'train',
      held_out=any(one.held_out for one in opened.values()), unlabelled=(),
      planned=planned, fields={
          name: field for name, field in first.fields.items()
          if all(one.has_field(name, field) for one in opened.values())},
      description='; '.join(filter(None, [
          *(one.description for one in opened.values()),
          'test: ' * bool(test) + ' + '.join(
              f'{source} {one.eval_split}' for source, one in test.items()),
          *notes])))


def _in_mixture(
    one: protocol.DatasetSplits, name: str, union: classes.Classes,
) -> protocol.DatasetSplits:
  """Returns a source with the classes of the mixture, if these have names."""
  numbers = classes.match(
      one.as_classes('a source', name), union, subset=True,
  )[0] if union.names else ()
  return dataclasses.replace(one, splits={
      split: renumbered.renumber(part, numbers, name)
      for split, part in one.splits.items()})


def _no_labels(
    entries: Entries, opened: Mapping[str, protocol.DatasetSplits]) -> str:
  """Returns why a mixture has no labels; '' if it has."""
  kinds = {source: ' '.join([one.kind, *one.targets])
           for source, one in opened.items()}
  if 'none' in kinds.values():
    return next(filter(None, (one.no_labels for one in opened.values())))
  if len({*kinds.values()}) > 1:
    each = ', '.join(f'{source}: {kind}' for source, kind in kinds.items())
    return (f'The sources of data.mixture have different labels ({each}). Mix '
            'sources with the same kind, or the same regression targets.')
  for source, one in opened.items():
    if len(opened) > 1 and not one.class_names and not one.targets:
      return (f'{source} has no class names'
              + ', by which the classes of data.mixture are matched.')
  for entry in entries:
    if {*split_strings.names(entry.split)} & {
        *opened[entry.source].unlabelled}:
      return f'The split {entry.split!r} of {entry.source} has no labels.'
  return ''
