"""Changes of the examples of a run since its checkpoint.

An image that was trained on and is now held out is an error when a run resumes,
and is counted when its weights are evaluated. Any other difference is a note.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import os
from typing import Any

from jaxtyping import UInt64
import numpy as np

from vit_jax import console
from vit_jax import data
from vit_jax.data.sources import files
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.extras.changes import example_sets

_Keys = UInt64[np.ndarray, '_']


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
  return tuple(map(example_sets.origin_of, experiment.config.data.sources))


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
    text: descriptions of the differences, on further lines of a message.
    evaluators: those whose examples or labels differ.
    problem: why the run cannot resume, with advice; '' if it can.
  """
  record: example_sets.Record
  text: str = ''
  evaluators: tuple[str, ...] = ()
  problem: str = ''

  @property
  def examples(self) -> dict[str, Any]:
    """The record as plain data, for checkpoints."""
    return self.record.to_plain()


def of_run(
    experiment: experiment_lib.Experiment,
    earlier: Mapping[str, Any] | None = None,
) -> Changes:
  """Returns the changes since a checkpoint, with the record of the run.

  Args:
    experiment: the experiment.
    earlier: the examples in the checkpoint; None for a new run.
  """
  found = record(experiment)
  return Changes(found) if earlier is None else compare(earlier, found)


def compare(plain: Mapping[str, Any], new: example_sets.Record) -> Changes:
  """Compares the examples in a checkpoint, as plain data, with those of a run.

  Checkpoints of earlier versions have none.
  """
  if not plain:
    return Changes(
        new, '\nnote: the checkpoint does not say which images it was trained '
        'on, so changes of the data are not noticed')
  old = example_sets.Record.of_plain(plain)
  earlier = old.earlier if old.trained is None or new.train.keys is None else (
      np.setdiff1d(old.trained, new.train.keys, assume_unique=True))
  texts: dict[str, list[str]] = {}
  evaluators = set[str]()
  for name, what, before, after in _pairs(old, new):
    if not before.equals(after):
      evaluators.add(name)
      texts.setdefault(', '.join(_describe(before, after)), []).append(what)
  return Changes(
      dataclasses.replace(new, earlier=earlier),
      '\nChanges of the data since the checkpoint:' * bool(texts) + ''.join(
          f'\n  {" and ".join(of)}: {text}' for text, of in texts.items()),
      tuple(sorted(evaluators - {''})), _problem(old, new, earlier))


def _pairs(
    old: example_sets.Record, new: example_sets.Record,
) -> Iterator[tuple[str, str, example_sets.ExampleSet,
                    example_sets.ExampleSet]]:
  """Yields evaluators ('' for training), names and the sets to compare."""
  yield '', 'train', old.train, new.train
  for name in filter(old.evals.__contains__, new.evals):
    for what, before, after in zip(
        ('', ', fitted to'), old.evals[name], new.evals[name]):
      yield name, f'evals.{name}{what}', before, after


def _problem(
    old: example_sets.Record, new: example_sets.Record, earlier: _Keys) -> str:
  """Names images that were trained on and are now held out."""
  for name, (measured, *_) in new.evals.items():
    if measured.keys is None or (
        measured.origin and measured.origin not in old.sources):
      continue
    found = np.intersect1d(earlier, measured.keys, assume_unique=True)
    for before, *_ in filter(None, [old.evals.get(name)]):
      if before.keys is not None and before.origin == measured.origin:
        found = np.setdiff1d(found, before.keys, assume_unique=True)
    if len(found):
      return (
          f'trained on {len(found):,} of the '
          f'{console.format_count(measured.count, "image")} that evals.{name} '
          f'now holds out ({_examples(measured, found)}), so its metrics would '
          'be too good. Restore the data and the settings that choose them,')
  return ''


def _describe(
    old: example_sets.ExampleSet, new: example_sets.ExampleSet,
) -> Iterator[str]:
  """Yields '1 image added (a/7.png)', '2 images with another label (b/1.png)'.
  """
  if old.keys is None or new.keys is None:
    yield (f'{old.count:,} images became {new.count:,}'
           if old.count != new.count else 'other images or files')
    return
  found = {'added': np.setdiff1d(new.keys, old.keys),
           'removed': np.setdiff1d(old.keys, new.keys),
           'with another label': new.relabelled(old)}
  for what, keys in found.items():
    if len(keys):
      # The names of removed images are not known.
      names = f' ({_examples(new, keys)})' if what != 'removed' else ''
      yield f'{console.format_count(len(keys), "image")} {what}{names}'
  if not any(map(len, found.values())):
    yield 'the prepared files changed'


def _examples(one: example_sets.ExampleSet, keys: _Keys) -> str:
  return files.shorten(one.names(keys[:4]))


# ---------------------------------------------------------------- on evaluating


def evaluation_notes(
    experiment: experiment_lib.Experiment, plain: Mapping[str, Any],
) -> list[str]:
  """Returns notes about evaluated images that were, or may be, trained on.

  `plain` is the record in the checkpoint.
  """
  if not plain:
    return ['note: the checkpoint does not say which images it was trained on, '
            'so they are not counted']
  notes, trained_on = [], example_sets.Record.of_plain(plain)
  trained = trained_on.trained
  for name, section in experiment.config.evals.items():
    dataset = experiment.data_of(name)
    measured = _of_dataset(
        experiment, dataset, section.source, trained_on.sources)
    origins = [measured.origin] if measured.origin else _sources(experiment)
    if not all(_is_one_of(one, trained_on.sources) for one in origins):
      continue
    if trained is None or measured.keys is None:
      notes.append(f'note: evals.{name}: the data are too large to tell which '
                   'images were trained on')
    elif len(found := np.intersect1d(measured.keys, trained)):
      notes.append(
          f'note: evals.{name}: {len(found):,} of these {measured.count:,} '
          f'images were trained on ({_examples(measured, found)})')
  return notes


def _is_one_of(source: str, trained: Sequence[str]) -> bool:
  """Whether a source was trained on, or one that has been moved."""
  return source in trained or any(
      os.path.basename(source) == os.path.basename(one)
      and os.path.isabs(one) and not os.path.exists(one) for one in trained)


def join(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns the first record, which trained on the images of all.

  Returns {} if one is unknown.
  """
  if not all(records):
    return {}
  first, *others = map(example_sets.Record.of_plain, records)
  if first.train.keys is None:
    return first.to_plain()
  trained = [one.trained for one in others if one.trained is not None]
  return dataclasses.replace(first, earlier=np.setdiff1d(
      np.concatenate([first.earlier, *trained]), first.train.keys)).to_plain()
