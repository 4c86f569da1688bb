"""Changes of the examples of a run since its checkpoint.

An image that was trained on and is now held out is an error when a run resumes,
and is counted when its weights are evaluated. Any other difference is a note.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import os

from jaxtyping import UInt64
import numpy as np

from vit_jax import console
from vit_jax import data
from vit_jax.data import example_sets
from vit_jax.data.sources import files
from vit_jax.data.splits import split_strings
from vit_jax.experiment import experiment as experiment_lib

_Keys = UInt64[np.ndarray, '_']
_MAX_HASHES = 3_000_000  # To find images that were moved to another folder.
_NO_KEYS: _Keys = np.zeros(0, np.uint64)


def record(experiment: experiment_lib.Experiment) -> example_sets.Record:
  """Returns the sets that an experiment trains on and evaluates."""
  sources = _sources(experiment)
  found: dict[int, example_sets.ExampleSet] = {}

  def of_split(split: str, source: str) -> example_sets.ExampleSet:
    dataset, _ = experiment.open_data(split, source)
    if id(dataset) not in found:  # Several evaluators may share it.
      found[id(dataset)] = _of_dataset(experiment, dataset, source, sources)
    return found[id(dataset)]

  return example_sets.Record(
      sources, example_sets.of_dataset(experiment.dataset, sources=sources),
      {name: tuple(of_split(split, section.source) for split in (
          section.split, section.fit_split) if split is not None)
       for name, section in experiment.config.evals.items()})


def _sources(experiment: experiment_lib.Experiment) -> tuple[str, ...]:
  return tuple(map(
      example_sets.origin_of, experiment.config.data.sources))


def _of_dataset(
    experiment: experiment_lib.Experiment, dataset: data.Dataset, source: str,
    sources: Sequence[str],
) -> example_sets.ExampleSet:
  """Returns the set of an evaluator's examples."""
  config = experiment.config.data
  origin = ''
  if config.val_source and dataset.name == config.val_source:
    origin = example_sets.origin_of(config.val_source)
  elif config.own_source(source) not in (None, *config.sources):
    origin = example_sets.origin_of(source)
  return example_sets.of_dataset(dataset, sources=sources, origin=origin)


# ------------------------------------------------------------------ on resuming


@dataclasses.dataclass(frozen=True)
class Changes:
  """Differences between the examples of a checkpoint and those of a run.

  Attributes:
    record: the sets of the run, with what was trained on earlier.
    lines: descriptions of the differences.
    evaluators: those whose examples or labels differ.
    problem: why the run cannot resume, with advice; '' if it can.
    complete: whether all examples could be compared.
  """
  record: example_sets.Record
  lines: tuple[str, ...] = ()
  evaluators: tuple[str, ...] = ()
  problem: str = ''
  complete: bool = True


def compare(old: example_sets.Record, new: example_sets.Record) -> Changes:
  """Compares the examples of a checkpoint with those of a run."""
  trained = old.trained
  complete = trained is not None and new.train.keys is not None and all(
      one.keys is not None for of in new.evals.values() for one in of)
  earlier = old.earlier
  if trained is not None and new.train.keys is not None:
    earlier = np.setdiff1d(trained, new.train.keys, assume_unique=True)
  pairs, measured = {'train': (old.train, new.train)}, set[str]()
  for name in filter(old.evals.__contains__, new.evals):
    measured.add(f'evals.{name}')
    for what, before, after in zip(
        ('', ', fitted to'), old.evals[name], new.evals[name]):
      pairs[f'evals.{name}{what}'] = before, after
  different = {name: pair for name, pair in pairs.items()
               if not pair[0].equals(pair[1])}
  moved = _find_moved(old, new) if different else (_NO_KEYS, _NO_KEYS)
  names: dict[str, list[str]] = {}
  for name, pair in different.items():
    names.setdefault(_describe(*pair, moved, (
        _NO_KEYS if name in measured else _held_out(old))), []).append(name)
  return Changes(
      dataclasses.replace(new, earlier=earlier), complete=complete,
      lines=tuple(f'{" and ".join(of)}: {text}' for text, of in names.items()),
      evaluators=tuple(
          name for name, sets in new.evals.items() if name in old.evals
          and not (len(sets) == len(old.evals[name]) and all(
              one.equals(other)
              for one, other in zip(old.evals[name], sets)))),
      problem=_problem(old, new, earlier, moved))


def _held_out(old: example_sets.Record) -> _Keys:
  """Returns the keys that were measured on and not trained on."""
  keys = [of[0].keys for of in old.evals.values()
          if of[0].keys is not None and not of[0].origin]
  return np.setdiff1d(np.concatenate([_NO_KEYS, *keys]), (
      _NO_KEYS if old.trained is None else old.trained))


def _problem(
    old: example_sets.Record, new: example_sets.Record, earlier: _Keys,
    moved: tuple[_Keys, _Keys],
) -> str:
  """Names images that were trained on and are now held out."""
  for name, (measured, *_) in new.evals.items():
    if measured.keys is None or (
        measured.origin and measured.origin not in old.sources):
      continue
    before = old.evals[name][0].keys if name in old.evals else None
    found = earlier[np.isin(earlier, measured.keys, assume_unique=True)]
    if before is not None:
      found = np.setdiff1d(found, before, assume_unique=True)
    found = np.union1d(found, _moved_from_training(old, measured, moved))
    if len(found):
      return (
          f'trained on {len(found):,} of the '
          f'{console.format_count(measured.count, "image")} that evals.{name} '
          f'now holds out ({_examples(measured, found)}), so its metrics would '
          'be too good. Restore the data and the settings that choose them,')
  return ''


def _moved_from_training(
    old: example_sets.Record, measured: example_sets.ExampleSet,
    moved: tuple[_Keys, _Keys],
) -> _Keys:
  """Returns keys of files that were moved out of the folder for training.

  Another class or name would be another image with the same number.
  """
  keys, before = moved
  if old.train.keys is None or measured.keys is None or measured.origin:
    return _NO_KEYS
  chosen = np.isin(keys, measured.keys) & np.isin(before, old.train.keys)
  keys, before = keys[chosen], before[chosen]
  return keys[measured.label_of(keys) == old.train.label_of(before)]


def _find_moved(
    old: example_sets.Record, new: example_sets.Record,
) -> tuple[_Keys, _Keys]:
  """Returns the new and old keys of files with the same name elsewhere.

  They are looked up in all folders of the data, because the old names are not
  known.
  """
  sets = [one for one in (new.train, *(of[0] for of in new.evals.values()))
          if not one.origin and one.keys is not None]
  before = [one.keys for one in (
      old.train, *(of[0] for of in old.evals.values()))
            if not one.origin and one.keys is not None]
  now = np.concatenate([_NO_KEYS, *(one.keys for one in sets)])
  removed = np.setdiff1d(np.concatenate([_NO_KEYS, *before]), now)
  added = np.setdiff1d(now, np.concatenate([_NO_KEYS, *before]))
  if not len(removed) or not len(added) or len(new.sources) > 1:
    return _NO_KEYS, _NO_KEYS
  folders = {os.path.dirname(one.dataset.source.key(i)) for one in sets
             if one.dataset is not None for i in range(one.count)}
  if len(added) * len(folders) > _MAX_HASHES:
    return _NO_KEYS, _NO_KEYS
  found: list[tuple[int, int]] = []
  for one in sets:
    keys = added[np.isin(added, one.keys)]  # type: ignore[arg-type]
    for key, name in zip(keys.tolist(), one.names(keys)):
      hashes = split_strings.stable_hashes(
          (os.path.join(folder, os.path.basename(name)) for folder in folders),
          len(folders))
      matches = np.intersect1d(hashes, removed)
      if len(matches) == 1:
        found.append((key, int(matches[0])))
  pairs = np.array(found, np.uint64).reshape(-1, 2)
  _, first = np.unique(pairs[:, 0], return_index=True)
  return pairs[first, 0], pairs[first, 1]


def _describe(
    old: example_sets.ExampleSet, new: example_sets.ExampleSet,
    moved: tuple[_Keys, _Keys], held_out: _Keys,
) -> str:
  """Returns '1 image added (a/7.png), 2 with another label (b/1.png, ...)'.

  Added images may have been `held_out`.
  """
  if old.keys is None or new.keys is None:
    return (f'{old.count:,} images became {new.count:,}'
            if old.count != new.count else 'other images or files')
  return ', '.join(_parts(old, new, moved, held_out)) or (
      'the prepared files changed')


def _parts(
    old: example_sets.ExampleSet, new: example_sets.ExampleSet,
    moved: tuple[_Keys, _Keys], held_out: _Keys,
) -> Iterator[str]:
  assert old.keys is not None and new.keys is not None
  added = np.setdiff1d(new.keys, old.keys)
  removed = np.setdiff1d(old.keys, new.keys)
  within = np.isin(moved[0], added) & np.isin(moved[1], removed)
  keys, before = moved[0][within], moved[1][within]
  is_same = new.label_of(keys) == old.label_of(before)
  added, removed = np.setdiff1d(added, keys), np.setdiff1d(removed, before)
  was_held_out = np.isin(added, held_out) | np.isin(
      added, moved[0][np.isin(moved[1], held_out)])
  for found, one, what in (
      (added[~was_held_out], 'image', 'added'),
      (added[was_held_out], 'held-out image', 'added'),
      (removed, 'image', 'removed'),
      (keys[~is_same], 'image', 'moved to another class'),
      (keys[is_same], 'image', 'moved to another folder'),
      (new.relabelled(old), 'image', 'with another label')):
    if len(found):
      # The names of removed images are not known.
      names = f' ({_examples(new, found)})' if what != 'removed' else ''
      yield f'{console.format_count(len(found), one)} {what}{names}'


def _examples(one: example_sets.ExampleSet, keys: _Keys) -> str:
  return files.shorten(one.names(keys[:4]))


# ---------------------------------------------------------------- on evaluating


def evaluation_notes(
    experiment: experiment_lib.Experiment, trained_on: example_sets.Record,
) -> list[str] | None:
  """Returns notes about evaluated images that were trained on.

  None if the weights' record or the data are too large to tell.
  """
  trained, notes = trained_on.trained, []
  for name, section in experiment.config.evals.items():
    dataset = experiment.data_of(name)
    measured = _of_dataset(
        experiment, dataset, section.source, trained_on.sources)
    origins = [measured.origin] if measured.origin else _sources(experiment)
    if not all(_is_one_of(one, trained_on.sources) for one in origins):
      continue
    if trained is None or measured.keys is None:
      return None
    if len(found := np.intersect1d(measured.keys, trained)):
      notes.append(
          f'note: evals.{name}: {len(found):,} of these {measured.count:,} '
          f'images were trained on ({_examples(measured, found)})')
  return notes


def _is_one_of(source: str, trained: Sequence[str]) -> bool:
  """Whether a source was trained on, or one that has been moved."""
  return source in trained or any(
      os.path.basename(source) == os.path.basename(one)
      and os.path.isabs(one) and not os.path.exists(one) for one in trained)
