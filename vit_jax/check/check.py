"""The whole check: read, find duplicates, ask the neighbours."""

import dataclasses
import time
from typing import Any, BinaryIO

from vit_jax import data
from vit_jax.check import duplicates
from vit_jax.check import examples
from vit_jax.check import report as report_lib
from vit_jax.check import scan as scan_lib
from vit_jax.check import suspicious_labels
from vit_jax.data import dataset
from vit_jax.data.augment import ops
from vit_jax.data.fingerprints import similarity
from vit_jax.data.images import decode as decode_lib
from vit_jax.data.images import multichannel
from vit_jax.data.splits import random_subsets

LOOKS = 'colours and edges alone, which is weak: give a model with --model'


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is found.

  Attributes:
    copies: what counts as a near-duplicate.
    labels: when one is suspicious.
  """
  copies: similarity.Likeness = similarity.Likeness()
  labels: suspicious_labels.Settings = suspicious_labels.Settings()


def ask(
    config: data.DataConfig, *, max_examples: int = 0,
    embed: scan_lib.Embed | None = None, keep: int = 0,
) -> scan_lib.Asked:
  """Returns what to read of all splits of a data set; reads no image.

  Args:
    config: the section `data`.
    max_examples: that many of all splits together, chosen by a hash of their
      names; 0 for all.
    embed: a model, or None.
    keep: the shorter side of pictures that it is given, at least.

  Raises:
    ValueError: if there is no such data set.
  """
  if max_examples < 0:
    raise ValueError(
        f'--max-examples must be 0, for all, or more; got {max_examples}.')
  whole = dataset.open_splits(config)
  # A handful of files may leave a split without any.
  found = {name: source for name, source in whole.splits.items() if len(source)}
  total = sum(map(len, found.values()))
  wanted = min(max_examples or total, total)
  chosen = []
  for name, source in found.items():
    count = min(len(source), max(1, round(wanted * len(source) / total)))
    chosen.append(scan_lib.Split(name, random_subsets.select_random(
        source, count, name=f'{config.source} {name}'), len(source)))
  kind: scan_lib.Kind = (
      'numbers' if whole.targets else
      'several classes' if whole.multi_label else 'classes')
  names = () if whole.targets else whole.class_names or tuple(
      map(str, range(whole.num_classes)))
  return scan_lib.Asked(
      config.source, tuple(chosen), kind, names, _decode(config), embed, keep,
      whole.description)


def check(
    asked: scan_lib.Asked, settings: Settings, *, features: str,
    store: BinaryIO, done: scan_lib.Done, failed: scan_lib.Failed,
) -> report_lib.Report:
  """Reads what is asked for, and says what is wrong with it.

  Args:
    asked: what to read.
    settings: what to find.
    features: what neighbours are found by, in words.
    store: an empty file for small pictures, open as long as they are shown.
    done: told of examples that were read.
    failed: told of each that cannot be.
  """
  start = time.monotonic()
  scan = scan_lib.scan(asked, store=store, done=done, failed=failed)
  secs = time.monotonic() - start
  groups = duplicates.find(scan, settings.copies)
  labels = suspicious_labels.find(
      scan, duplicates.of_example(groups, len(asked)), settings.labels)
  return report_lib.Report(
      scan, groups, labels, features, secs / max(len(asked), 1))


def _decode(config: data.DataConfig) -> examples.Decode:
  """Returns what decodes an image as a run would."""
  def decode(image: Any) -> ops.Picture:
    if config.is_picture:
      return decode_lib.decode(
          image, channels=3, max_pixels=config.max_pixels)
    return multichannel.decode(image, channels=config.channels, dtype=config.dtype,
                        max_pixels=config.max_pixels)

  return decode
