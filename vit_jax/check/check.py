"""A complete check: read images, find duplicates and suspicious labels."""

from collections.abc import Callable

from vit_jax import data
from vit_jax.check import duplicates as duplicates_lib
from vit_jax.check import findings
from vit_jax.check import report as report_lib
from vit_jax.check import scan as scan_lib
from vit_jax.check import suspicious_labels
from vit_jax.data import dataset
from vit_jax.data.fingerprints import similarity
from vit_jax.data.splits import random_subsets


def prepare(
    config: data.DataConfig, *, max_examples: int = 0,
    embed: scan_lib.Embed | None = None, min_side: int = 0,
) -> scan_lib.ScanRequest:
  """Opens all splits of a dataset; reads no image.
  A subset of `max_examples` of all splits together is chosen by a hash of the
  keys; 0 takes all.
  """
  if max_examples < 0:
    raise ValueError(
        f'--max-examples must be at least 0 (all); got {max_examples}.')
  opened = dataset.open_splits(config)
  # A dataset of a few files may have an empty split.
  sources = {name: source for name, source in opened.splits.items()
             if len(source)}
  total = sum(map(len, sources.values()))
  fraction = min(1, max_examples / total) if max_examples and total else 1
  return scan_lib.ScanRequest(
      config.source,
      tuple(scan_lib.Split(name, random_subsets.select_random(
          source, max(1, round(fraction * len(source))),
          name=f'{config.source} {name}'), len(source))
            for name, source in sources.items()),
      label_kind=('numbers' if opened.targets else
                  'several classes' if opened.multi_label else 'classes'),
      class_names=() if opened.targets else opened.class_names or tuple(
          map(str, range(opened.num_classes))),
      decode=config.decode, embed=embed, min_side=min_side,
      description=opened.description)


def run(
    request: scan_lib.ScanRequest, *, likeness: similarity.Likeness,
    settings: suspicious_labels.Settings, features: str,
    advance: Callable[[int], None], failed: Callable[[str, Exception], None],
) -> findings.Report:
  """Reads the dataset and reports what is wrong with it.
  For `advance` and `failed` see `scan.scan`; `features` is for the report.
  """
  scan = scan_lib.scan(request, advance=advance, failed=failed)
  duplicates = duplicates_lib.find(scan, likeness)
  labels = suspicious_labels.find(scan, duplicates, settings)
  return report_lib.build(scan, duplicates, labels, features=features)
