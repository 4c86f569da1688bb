"""A complete check: read images, find duplicates and suspicious labels."""

from collections.abc import Callable
import dataclasses
import time
from typing import Any

from vit_jax import data
from vit_jax.check import duplicates as duplicates_lib
from vit_jax.check import findings
from vit_jax.check import image_record
from vit_jax.check import report as report_lib
from vit_jax.check import scan as scan_lib
from vit_jax.check import suspicious_labels
from vit_jax.data import dataset
from vit_jax.data.augment import ops
from vit_jax.data.fingerprints import similarity
from vit_jax.data.images import decode as decode_lib
from vit_jax.data.images import multichannel
from vit_jax.data.splits import random_subsets

DEFAULT_FEATURES = 'colours and edges (weak; use --model)'


@dataclasses.dataclass(frozen=True)
class Settings:
  """Thresholds for near-duplicates and suspicious labels."""
  duplicates: similarity.Likeness = similarity.Likeness()
  labels: suspicious_labels.Settings = suspicious_labels.Settings()


def prepare(
    config: data.DataConfig, *, max_examples: int = 0,
    embed: scan_lib.Embed | None = None, min_side: int = 0,
) -> scan_lib.ScanRequest:
  """Opens all splits of a dataset; reads no image.

  Args:
    config: the `data` section.
    max_examples: examples of all splits together, chosen by a hash of their
      keys; 0 for all.
    embed: model features; None for colours and edges.
    min_side: shorter side of the images that `embed` needs.

  Raises:
    ValueError: if there is no such dataset.
  """
  if max_examples < 0:
    raise ValueError(
        f'--max-examples must be at least 0 (all); got {max_examples}.')
  opened = dataset.open_splits(config)
  # A dataset of a few files may have an empty split.
  sources = {name: source for name, source in opened.splits.items()
             if len(source)}
  total = sum(map(len, sources.values()))
  num_examples = min(max_examples or total, total)
  splits = []
  for name, source in sources.items():
    count = max(1, round(num_examples * len(source) / total))
    splits.append(scan_lib.Split(name, random_subsets.select_random(
        source, min(len(source), count), name=f'{config.source} {name}'),
                                 len(source)))
  return scan_lib.ScanRequest(
      config.source, tuple(splits), label_kind=(
          'numbers' if opened.targets else
          'several classes' if opened.multi_label else 'classes'),
      class_names=() if opened.targets else opened.class_names or tuple(
          map(str, range(opened.num_classes))),
      decode=_decoder(config), embed=embed, min_side=min_side,
      description=opened.description)


def run(
    request: scan_lib.ScanRequest, settings: Settings, *, features: str,
    advance: Callable[[int], None], failed: Callable[[str, Exception], None],
) -> findings.Report:
  """Reads the dataset and reports what is wrong with it.

  Args:
    request: what to read.
    settings: thresholds.
    features: description of the features that neighbours are compared by.
    advance: called with the number of images just read.
    failed: called with the key of an unreadable example and its error.
  """
  start = time.monotonic()
  scan = scan_lib.scan(request, advance=advance, failed=failed)
  secs_per_image = (time.monotonic() - start) / max(len(request), 1)
  duplicates = duplicates_lib.find(scan, settings.duplicates)
  labels = suspicious_labels.find(
      scan, duplicates_lib.group_ids(duplicates, len(request)),
      settings.labels)
  return report_lib.build(scan, duplicates, labels, features=features,
                          secs_per_image=secs_per_image)


def _decoder(config: data.DataConfig) -> image_record.Decode:
  """Returns a function that decodes an image as training does."""
  def decode(image: Any) -> ops.Picture:
    if config.is_picture:
      return decode_lib.decode(
          image, channels=3, max_pixels=config.max_pixels)
    return multichannel.decode(
        image, channels=config.channels, dtype=config.dtype,
        max_pixels=config.max_pixels)

  return decode
