"""A whole data set: planned, written shard by shard, and opened as it will be.

    TO/NAME/1.0.0/NAME-train.array_record-00000-of-00004
                  features.json  label.labels.txt  dataset_info.json
                  checksums.json   what is in each shard

`dataset_info.json` comes last: until then nothing takes it for a data set.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import json
import re
from typing import Any

from etils import epath

from vit_jax import data
from vit_jax import schema
from vit_jax.data import beam_runner as beam_runner_lib
from vit_jax.data import dataset
from vit_jax.data import known_datasets
from vit_jax.data.splits import selection as selection_lib
from vit_jax.prepare import examples
from vit_jax.prepare import images as images_lib
from vit_jax.prepare import shards as shards_lib

_PLAN = '.plan.json'


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is to be written.

  Attributes:
    name: of the data set.
    version: of it: '1.0.0'.
    folder: where, with name and version.
    features: what an example holds.
    shards: of each split, in order.
    keys: what sums up the examples' names in each split, in order: shards that
      were finished before belong to these and to no others.
    understood: the source, in words; perhaps ''.
  """
  name: str
  version: str
  folder: str
  features: examples.Features
  shards: Mapping[str, tuple[shards_lib.Shard, ...]]
  keys: Mapping[str, str]
  understood: str = ''

  @property
  def all_shards(self) -> list[shards_lib.Shard]:
    """The shards of all splits."""
    return [shard for of_split in self.shards.values() for shard in of_split]


def plan(
    settings: Mapping[str, Any], *, splits: Sequence[str], to: str, name: str,
    version: str, shard_bytes: int,
    pictures: images_lib.Pictures = images_lib.AS_THEY_ARE,
) -> Plan:
  """Returns what to write; reads a sample of each split.

  Args:
    settings: the section `data`, with the source. Its `exclude` is of the
      training split, `split`, as in a run; others are written whole.
    splits: to write; all there are if empty.
    to: the directory.
    name: of the data set there.
    version: of it.
    shard_bytes: about how large a shard shall be.
    pictures: what becomes of images.

  Raises:
    ValueError: for a name or version that TFDS does not take, if there are
      no examples at all, or if `exclude` is of a split that is not written.
  """
  _check_names(name, version)
  config = data.parse(settings)
  whole = dataset.open_splits(config)
  folder = epath.Path(to).expanduser() / name / version
  # Of a handful of files, a split may have none.
  there = [split for split, source in whole.splits.items() if len(source)]
  if not there:
    raise ValueError(f'{settings["source"]} has no examples at all.')
  chosen = [schema.check_name(split, there, what='split with examples')
            for split in splits] or there
  thinned = _excluded_from(config, chosen)
  opened, sizes = {}, {}
  sample: list[Mapping[str, Any]] = []
  for split in chosen:
    opened[split] = selection_lib.of(
        settings['source'], split,
        {**settings, 'exclude': config.exclude if split in thinned else ''})
    of_split = examples.sample(opened[split].open(), pictures)
    num_bytes = sum(len(example['image']) for example in of_split)
    sizes[split] = max(1, num_bytes) / len(of_split)
    sample += of_split
  features = examples.describe(
      opened[chosen[0]].open(), sample, pictures=pictures,
      label=known_datasets.facts(name).label)
  return Plan(name, version, str(folder), features, {
      split: _split_up(
          selection, max(1, round(shard_bytes / sizes[split])), name, split,
          str(folder), features)
      for split, selection in opened.items()}, {
          split: _sum_of_keys(selection.open().source)
          for split, selection in opened.items()},
              '; '.join(filter(None, [whole.description, *(
                  f'{split} has no examples, and is left out'
                  for split in whole.splits if split not in there), *(
                      f'{split}: {opened[split].open().excluded}'
                      for split in thinned)])))


def _excluded_from(
    config: data.DataConfig, chosen: Sequence[str]) -> list[str]:
  """Returns the splits that `data.exclude` is of; [] without it."""
  if not config.exclude:
    return []
  trained = {part.partition('[')[0] for part in config.split.split('+')}
  found = [split for split in chosen if split in trained]
  if not found:
    raise ValueError(
        f'data.exclude is of the split {config.split!r} (data.split), which is '
        f'not written: {", ".join(chosen)}. Name another by --set=split=NAME, '
        'or leave data.exclude out.')
  return found


def _sum_of_keys(source: Any) -> str:
  digest = hashlib.blake2b(digest_size=16)
  for index in range(len(source)):
    digest.update(source.key(index).encode() + b'\n')
  return digest.hexdigest()


def _split_up(
    selection: selection_lib.Selection, size: int, name: str, split: str,
    folder: str, features: examples.Features,
) -> tuple[shards_lib.Shard, ...]:
  """Returns shards of about as many examples each."""
  total = len(selection.open())
  count = -(-total // size)
  ends = [i * total // count for i in range(count + 1)]
  return tuple(
      shards_lib.Shard(
          selection, ends[i], ends[i + 1], folder,
          shards_lib.name_of(name, split, i, count), features)
      for i in range(count))


def _check_names(name: str, version: str) -> None:
  if not re.fullmatch(r'[a-z][a-z0-9_]*', name):
    raise ValueError(
        f'--name must be of small letters, digits and _, and begin with a '
        f'letter, as TFDS names are; got {name!r}.')
  if not re.fullmatch(r'\d+\.\d+\.\d+', version):
    raise ValueError(f'--version must be like 1.0.0; got {version!r}.')


def begin(planned: Plan) -> int:
  """Makes the folder; returns how many shards were finished before.

  Raises:
    FileExistsError: if it holds a data set already.
    ValueError: if it holds shards of another plan.
  """
  folder = epath.Path(planned.folder)
  if (folder / 'dataset_info.json').exists():
    raise FileExistsError(
        17, 'is prepared already; remove it, or give another --name or '
        '--version', str(folder))
  folder.mkdir(parents=True, exist_ok=True)
  # Not in what words it is said.
  text = json.dumps(
      dataclasses.asdict(dataclasses.replace(planned, understood='')),
      sort_keys=True)
  path = folder / _PLAN
  if path.exists() and path.read_text() != text:
    raise ValueError(
        f'{folder} holds shards that another command began, or the source has '
        'changed since. Remove it to begin anew, or give another --version.')
  _write_text(path, text)
  return sum(shards_lib.finished(shard) is not None
             for shard in planned.all_shards)


def count_finished(planned: Plan) -> int:
  """Returns how many shards are finished by now, by one look at the folder."""
  return sum(1 for _ in epath.Path(planned.folder).glob(
      f'.{planned.name}-*.json'))


def write(planned: Plan, *, runner: str, flags: Sequence[str]) -> None:
  """Writes all shards that are not finished, here or on Beam."""
  if runner == beam_runner_lib.LOCAL:
    for shard in planned.all_shards:
      shards_lib.write(shard)
    return
  beam = beam_runner_lib.load()

  def build(pipeline: Any) -> None:
    _ = (pipeline
         | 'shards' >> beam.Create(planned.all_shards)
         # Else one worker writes them all.
         | 'spread' >> beam.Reshuffle()
         | 'write' >> beam.Map(shards_lib.write))

  beam_runner_lib.run(build, runner=runner, flags=flags)


def finish(planned: Plan) -> dict[str, Any]:
  """Writes what makes a data set of the shards; returns what they hold.

  Raises:
    RuntimeError: if a shard is missing.
  """
  folder = epath.Path(planned.folder)
  facts = {}
  for shard in planned.all_shards:
    found = shards_lib.finished(shard)
    if found is None:
      raise RuntimeError(
          f'{shard.path} is not there, or not whole. Do all workers see '
          f'{folder}? The same command goes on with what is missing.')
    facts[shard.name] = dataclasses.asdict(found)
  planned.features.write(folder)
  (folder / 'checksums.json').write_text(json.dumps(facts, indent=2) + '\n')
  _write_text(folder / 'dataset_info.json',
              json.dumps(_info(planned, facts), indent=2) + '\n')
  for path in folder.glob('.*'):  # And what a killed worker left.
    path.rmtree() if path.is_dir() else path.unlink()
  return facts


def _write_text(path: epath.Path, text: str) -> None:
  """Writes a file whole or not at all."""
  new = path.with_name(f'.new{path.name}')
  new.write_text(text)
  new.replace(path)


def _info(planned: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
  """Returns dataset_info.json, as TFDS reads it."""
  return {
      'name': planned.name, 'version': planned.version,
      'description': planned.features.pictures.description,
      'fileFormat': shards_lib.FORMAT, 'disableShuffling': True,
      'moduleName': 'vit_jax.prepare', 'splits': [{
          'name': split,
          'numBytes': str(sum(facts[s.name]['record_bytes'] for s in shards)),
          'shardLengths': [str(s.last - s.first) for s in shards],
          'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}'}
          for split, shards in planned.shards.items()]}


def verify(planned: Plan) -> None:
  """Opens what was written as a run will, and compares it with the source.

  Its shards were read back one by one; this is of what joins them: counts,
  classes, and the examples at both ends of each shard. What differs is no data
  set: its dataset_info.json is taken away.

  Raises:
    RuntimeError: naming what differs.
  """
  try:
    _compare(planned)
  except RuntimeError:
    (epath.Path(planned.folder) / 'dataset_info.json').unlink()
    raise


def _compare(planned: Plan) -> None:
  root = str(epath.Path(planned.folder).parent.parent)
  for split, shards in planned.shards.items():
    there = data.open_dataset(data.parse({
        'source': f'{planned.name}:{planned.version}', 'data_dir': root,
        'split': split}))
    source = shards[0].selection.open()
    _same('examples', split, len(there), len(source))
    _same('classes', split, there.num_classes, source.num_classes)
    _same('targets', split, there.targets, source.targets)
    names = source.class_names or ()
    if any(not name.isdigit() for name in names):  # TFDS's own for none.
      _same('names of classes', split, there.class_names, names)
    for index in sorted({i for s in shards for i in (s.first, s.last - 1)}):
      one, other = examples.Digest(), examples.Digest()
      read, wanted = there[index], source[index]
      one.add('', read['label'], bytes(read['image']))
      other.add('', wanted['label'],
                planned.features.pictures.stored(wanted['image']))
      _same(f'example {index}', split, one.hexdigest(), other.hexdigest())


def _same(what: str, split: str, there: Any, wanted: Any) -> None:
  if there != wanted:
    raise RuntimeError(
        f'What was written differs from the source: {what} of {split}: '
        f'{there} for {wanted}. Did it change meanwhile? Remove what was '
        'written, and begin anew.')
