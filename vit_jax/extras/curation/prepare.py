"""Plans a prepared dataset, and writes it shard by shard.

    TO/NAME/1.0.0/NAME-train.array_record-00000-of-00004
                  features.json  label.labels.txt  dataset_info.json
                  train.groups.npy, the group of each example, if there are any

`dataset_info.json` is written last and makes the folder a dataset.
"""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import dataclasses
import hashlib
import io
import json
import re
import sys
from typing import Any

from etils import epath
import numpy as np
import rich.progress

from vit_jax import atomic_files
from vit_jax import data
from vit_jax import schema
from vit_jax.data import known_datasets
from vit_jax.data.sources import open_source
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError
from vit_jax.extras.curation import beam_runner
from vit_jax.extras.curation import group_files
from vit_jax.extras.curation import scan as scan_lib
from vit_jax.extras.curation import selection as selection_lib
from vit_jax.extras.curation import shards as shards_lib
from vit_jax.extras.curation import stored_images
from vit_jax.extras.curation import taught as taught_lib

_PLAN = '.plan.json'
_UNREADABLE = 'unreadable.jsonl'
_SHOWN = 5  # Unreadable images in messages.
_SAMPLE = 64  # Examples of a split that determine features and shard sizes.


@dataclasses.dataclass(frozen=True)
class Plan:
  """A dataset to write.

  Attributes:
    folder: output folder, including name and version.
    shards: shards of each split, in order.
    digest: hash of all keys, groups and class names; finished shards are kept
      only if it is unchanged.
    description: interpretation of the source; may be empty.
    skip_unreadable: whether unreadable examples are left out.
  """
  name: str
  version: str
  folder: str
  shards: Mapping[str, tuple[shards_lib.Shard, ...]]
  digest: str
  description: str = ''
  skip_unreadable: bool = False

  @property
  def all_shards(self) -> list[shards_lib.Shard]:
    """Shards of all splits."""
    return [shard for of_split in self.shards.values() for shard in of_split]

  @property
  def flags(self) -> str:
    """Flags of a run on the dataset, without its folder."""
    source, first = f'{self.name}:{self.version}', self.all_shards[0]
    if not first.features.taught:
      return f'--config.data.source={source}'
    height, width = first.selection.config.size
    return ' '.join(filter(None, [
        f'--config=configs/distil.py:data={source},resolution={height}',
        f'--config.data.resolution=[{height},{width}]' * (height != width),
        '' if first.features.taught.patches else (
            '--config.objective.patch_weight=0')]))


def plan(
    settings: Mapping[str, Any], *, splits: Sequence[str], to: str, name: str,
    version: str, shard_bytes: int, shorter_side: int = 0,
    taught: taught_lib.Taught | None = None,
) -> Plan:
  """Plans a dataset; reads a sample of each split.

  `settings` is a section `data`, whose `exclude`, `num_examples` and the like
  apply to the training split.
  Empty `splits` selects all splits. For the image format, see `stored_images`.
  With `taught`, examples are crops with the outputs of teachers, several of
  each training image and one of others.

  Raises:
    UserError: for a name or version that TFDS does not accept, a source
      without examples, or an `exclude` whose split is not written.
  """
  config = data.parse(settings)
  _check_names(name, version, config.split)
  # Unreadable examples may be left out of shards that are written already.
  settings = {key: value for key, value in settings.items()
              if key != 'unreadable'}
  image_format = stored_images.ImageFormat(shorter_side, config.max_pixels)
  if shorter_side and not config.is_picture:
    raise UserError(
        '--shorter-side applies to 8-bit images of 1 or 3 channels, but these '
        f'have {config.channels} channels of {config.dtype}. Remove it.')
  if shorter_side and taught:
    raise UserError(
        '--shorter-side and --teacher exclude each other: images with outputs '
        'of teachers are stored in the size of data.resolution. Remove one.')
  opened = open_source.open_splits(config)
  nonempty = [split for split, source in opened.splits.items() if len(source)]
  if not nonempty:
    raise UserError(f'{settings["source"]} has no examples.')
  chosen = [schema.check_name(split, nonempty, what='split with examples')
            for split in splits] or nonempty
  training = [split for split in chosen if split in split_strings.names(
      split_strings.expand_all(config.split, opened.splits))]
  selecting = [
      *(f'data.{key}' for key in sorted(
          selection_lib.SELECTION_KEYS & settings.keys())),
      *([f'--crops={taught.crops}'] if taught and taught.crops > 1 else ())]
  if selecting and not training:
    raise UserError(
        f'{selecting[0]} applies to the split {config.split!r} (data.split), '
        f'but only {", ".join(chosen)} would be written. Choose the split with '
        f'--set=split=NAME, or remove {selecting[0]}.')
  selections = {
      split: selection_lib.build(settings['source'], split, {
          key: value for key, value in settings.items()
          if split in training or key not in selection_lib.SELECTION_KEYS})
      for split in chosen}
  samples = {split: _sample(selection, image_format, taught)
             for split, selection in selections.items()}
  features = shards_lib.infer_features(
      selections[chosen[0]].open(),
      [example for sample in samples.values() for example in sample],
      image_format=image_format, label=known_datasets.facts(name).label,
      taught=taught)
  folder = epath.Path(to).expanduser() / name / version
  shards = {split: _shards(
      selection, samples[split], shard_bytes, str(folder), f'{name}-{split}',
      features, crops=0 if taught is None else (
          taught.crops if split in training else 1))
            for split, selection in selections.items()}
  return Plan(
      name, version, str(folder), shards,
      _digest_source(selections.values()), '; '.join(filter(None, [
          opened.description, opened.no_labels, *_describe(taught, training),
          *(f'{split} has no examples and is not written'
            for split in opened.splits if split not in nonempty),
          'segmentation masks are not written' if any(
              protocol.SEGMENTATION in example
              for sample in samples.values() for example in sample) else '',
          *(f'{split}: {selections[split].open().excluded}'
            for split in training if config.exclude)])),
      skip_unreadable=config.unreadable == 'skip')


def begin(planned: Plan) -> int:
  """Creates the folder; returns the number of shards finished before.

  Raises:
    UserError: if the folder is a dataset already.
    UserError: if it holds shards of another plan.
  """
  folder = epath.Path(planned.folder)
  if (folder / 'dataset_info.json').exists():
    raise UserError(
        f'{folder} is prepared already. Remove it, or choose another --name '
        'or --version.')
  text = json.dumps(
      dataclasses.asdict(dataclasses.replace(
          planned, description='', skip_unreadable=False)), sort_keys=True)
  path = folder / _PLAN
  if path.exists() and path.read_text() != text:
    raise UserError(
        f'{folder} holds shards of another command, or the source has changed '
        'since. Remove it, or choose another --version.')
  atomic_files.write_text(path, text)
  kept = 0
  for shard in planned.all_shards:
    facts = shards_lib.finished(shard)
    if facts and facts['unreadable']:
      shard.path.unlink()  # Images may have been repaired since.
    elif facts:
      kept += 1
  return kept


def write(
    planned: Plan, *, runner: str, flags: Sequence[str],
    outputs: taught_lib.Outputs | None = None,
) -> None:
  """Writes all unfinished shards, in this process or on Beam.

  `outputs` computes those of the teachers, which only this process does.
  """
  if runner == beam_runner.LOCAL:
    for shard in rich.progress.track(
        planned.all_shards, 'writing shards', disable=not sys.stdout.isatty()):
      shards_lib.write(shard, outputs)
    return
  with beam_runner.run(runner=runner, flags=flags) as (beam, pipeline):
    _ = (pipeline
         | 'shards' >> beam.Create(planned.all_shards)
         # Without a shuffle, one worker would write all of them.
         | 'spread' >> beam.Reshuffle()
         | 'write' >> beam.Map(shards_lib.write))


def finish(planned: Plan) -> tuple[dict[str, dict[str, Any]], str]:
  """Writes the metadata files.

  Returns:
    The facts of each shard by name, and a report of unreadable examples, which
    may be empty.

  Raises:
    RuntimeError: if a shard is missing.
    UserError: if examples are unreadable and not skipped.
  """
  folder = epath.Path(planned.folder)
  facts = {}
  for shard in planned.all_shards:
    found = shards_lib.finished(shard)
    if found is None:
      raise UserError(
          f'{shard.path} is missing. Check that all workers can access '
          f'{folder}, and run the command again to continue.')
    facts[shard.name] = found
  report = _report_unreadable(planned, [
      row for found in facts.values() for row in found.pop('unreadable')])
  for split, shards in planned.shards.items():
    groups = [group for shard in shards
              for group in facts[shard.name].pop('groups')]
    if shards[0].features.groups:
      file = io.BytesIO()
      np.save(file, np.array(groups, np.int64).view(np.uint64))
      atomic_files.write_bytes(
          group_files.path_of(folder, split), file.getvalue())
  first = planned.all_shards[0]
  first.features.write(folder, first.selection.open())
  atomic_files.write_json(
      folder / 'dataset_info.json', _dataset_info(planned, facts))
  # Including leftovers of killed workers. epath's `glob` would take the name of
  # the folder for a pattern.
  for path in folder.iterdir():
    if path.name.startswith('.'):
      path.rmtree() if path.is_dir() else path.unlink()
  return facts, report


def _report_unreadable(planned: Plan, rows: Sequence[dict[str, str]]) -> str:
  """Lists unreadable examples in a file; raises unless they are skipped."""
  path = epath.Path(planned.folder) / _UNREADABLE
  path.unlink(missing_ok=True)
  if not rows:
    return ''
  total = sum(shard.last - shard.first for shard in planned.all_shards)
  atomic_files.write_json_lines(path, rows)
  text = '\n- '.join([
      f'{len(rows):,} of {total:,} images cannot be read',
      *(row['error'] for row in rows[:_SHOWN]),
      *[f'... and {len(rows) - _SHOWN:,} more'] * (len(rows) > _SHOWN)])
  if not planned.skip_unreadable:
    raise UserError(
        f'{planned.name}: {text}\nSee {path}. Repair these images and run the '
        'command again, or leave them out with --set=unreadable=skip.')
  return f'{planned.name}: {text}\nThey are left out: see {path}'


def _check_names(name: str, version: str, split: str) -> None:
  if not re.fullmatch(r'[a-z][a-z0-9_]*', name):
    raise UserError(
        '--name must begin with a lower-case letter and contain only lower-'
        f'case letters, digits and _, as TFDS requires; got {name!r}.')
  if not re.fullmatch(r'\d+\.\d+\.\d+', version):
    raise UserError(f'--version must be like 1.0.0; got {version!r}.')
  if '[' in split:
    raise UserError(
        f'data.split is {split!r}, but whole splits are written. Name the '
        'split without its range, and take a part when you train, or set '
        'data.num_examples or data.fraction.')


def _describe(
    taught: taught_lib.Taught | None, training: Sequence[str],
) -> list[str]:
  if taught is None:
    return []
  crops = [f'{" and ".join(training)}: {taught.crops} crops of each image'
           ] * (taught.crops > 1 and bool(training))
  return [taught.summary, *crops]


def _sample(
    selection: selection_lib.Selection, image_format: stored_images.ImageFormat,
    taught: taught_lib.Taught | None,
) -> list[dict[str, Any]]:
  """Returns evenly chosen examples, with images as they are stored."""
  source, found = selection.open(), []
  for i in scan_lib.spread(len(source), _SAMPLE):
    with contextlib.suppress(FileNotFoundError):  # Its shard reports it.
      found.append(source[i])
  if taught is None:
    return [{**example, 'image': image_format.encode(example['image'])}
            for example in found]
  # All are PNG of the same size: noise of it is an upper bound.
  noise = image_format.encode(np.random.default_rng(0).integers(
      0, 256, selection.config.image_shape, np.uint8))
  return [{**example, 'image': noise} for example in found]


def _shards(
    selection: selection_lib.Selection, sample: Sequence[Mapping[str, Any]],
    shard_bytes: int, folder: str, name: str, features: shards_lib.Features, *,
    crops: int,
) -> tuple[shards_lib.Shard, ...]:
  """Returns shards of nearly equal numbers of examples."""
  extra = features.taught.num_bytes if features.taught else 0
  size = max(1, crops) * max(1, sum(
      len(example['image']) + extra for example in sample))
  per_shard = max(1, round(shard_bytes * len(sample) / size))
  total = len(selection.open())
  count = -(-total // per_shard)
  ends = [i * total // count for i in range(count + 1)]
  return tuple(
      shards_lib.Shard(
          selection, ends[i], ends[i + 1], folder,
          f'{name}.{shards_lib.FORMAT}-{i:05}-of-{count:05}', features, crops)
      for i in range(count))


def _digest_source(selections: Iterable[selection_lib.Selection]) -> str:
  digest = hashlib.blake2b(digest_size=16)
  for dataset in (selection.open() for selection in selections):
    digest.update(repr(dataset.classes).encode())
    if (groups := split_strings.groups(dataset.source)) is not None:
      digest.update(groups.tobytes())
    for index in range(len(dataset)):
      digest.update(dataset.source.key(index).encode(errors='surrogatepass')
                    + b'\n')
    for label in split_strings.labels(dataset.source):
      digest.update(np.asarray(label).tobytes() + b'\n')
  return digest.hexdigest()


def _dataset_info(
    planned: Plan, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
  """Returns dataset_info.json, as TFDS reads it."""
  features = planned.all_shards[0].features
  return {
      'name': planned.name, 'version': planned.version,
      'description': features.taught.summary if features.taught else (
          features.image_format.description),
      'fileFormat': shards_lib.FORMAT, 'disableShuffling': True,
      'moduleName': 'vit_jax.extras.curation', 'splits': [{
          'name': split,
          'numBytes': str(sum(facts[s.name]['record_bytes'] for s in shards)),
          'shardLengths': [str(facts[s.name]['examples']) for s in shards],
          'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}'}
          for split, shards in planned.shards.items()]}
