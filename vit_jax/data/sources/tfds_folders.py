"""Folders of TensorFlow Datasets: DATA_DIR/NAME[/CONFIG]/VERSION."""

import fnmatch
import os
import re
from typing import Any

from etils import epath

from vit_jax import exceptions
from vit_jax import registry
from vit_jax import schema
from vit_jax.data import known_datasets
from vit_jax.data.sources import files
from vit_jax.exceptions import UserError

GROUP = 'group_hash'  # Feature of datasets of `data prepare` with groups.
_INSTALL = '  pip install tensorflow tensorflow-datasets\n'


def is_prepared(folder: epath.Path) -> bool:
  """Whether TFDS prepared the content of a folder."""
  return (folder / 'dataset_info.json').exists() or bool(versions(folder))


def find(name: str, data_dir: str) -> epath.Path:
  """Returns the folder of 'NAME[/CONFIG][:VERSION]', by default the newest.

  '*' in a version matches any number.

  Raises:
    UserError: if it is missing, or in files without random access, with the
      command that prepares or converts it.
  """
  root = epath.Path(
      data_dir or os.environ.get('TFDS_DATA_DIR')
      or '~/tensorflow_datasets').expanduser()
  path, _, version = name.partition(':')
  command = (f'tfds build {path if "*" in version else name} '
             f'--data_dir={root} --file_format=array_record')
  folder = root / path
  found = versions(folder)
  configs = [] if found or not folder.is_dir() else [
      name for name in files.subfolders(folder) if versions(folder / name)]
  if len(configs) > 1:
    raise UserError(
        f'{path} has several configs in {root}; give one of '
        f'{", ".join(f"{path}/{config}" for config in configs)}.')
  if configs:
    folder = folder / configs[0]
    found = versions(folder)
  if matching := fnmatch.filter(found, version or '*'):
    file_format(folder / matching[-1])
    return folder / matching[-1]
  if found:
    raise UserError(
        f'{path} is prepared in {folder} in the version(s) '
        f'{", ".join(found)}, not in {version}.')
  present = (', '.join(files.subfolders(root)) or 'nothing'
             if root.is_dir() else 'no such directory')
  raise UserError(
      f'No dataset {name!r} in {root} (found: {present}).'
      f'{schema.nearest(path.split("/")[0], [*known_datasets.DATASETS])} '
      'Give the directory that has it as --config.data.data_dir=DIR, or, for a '
      'folder of images, its path with a slash: ./my_images. If TFDS lists it, '
      f'prepare it once, on any machine, with\n{_INSTALL}  {command}')


def versions(folder: epath.Path) -> list[str]:
  """Returns the prepared versions in a folder, oldest first."""
  if not folder.is_dir():
    return []
  found = [name for name in files.subfolders(folder)
           if re.fullmatch(r'\d+\.\d+\.\d+', name)
           and (folder / name / 'dataset_info.json').exists()]
  return sorted(found, key=lambda v: tuple(int(n) for n in v.split('.')))


def read_info(folder: epath.Path) -> Any:
  """Returns the `DatasetInfo` protobuf of a folder."""
  from tensorflow_datasets.core import dataset_info  # pylint: disable=g-import-not-at-top
  path = folder / 'dataset_info.json'
  with exceptions.naming(os.fspath(path)):
    return dataset_info.read_from_json(path)


def file_format(folder: epath.Path) -> str:
  """Returns 'array_record' or 'tfrecord'; raises UserError for others."""
  info = read_info(folder)
  # A folder holds several formats after a conversion.
  formats = [info.file_format or 'tfrecord', *info.alternative_file_formats]
  for known in ('array_record', 'tfrecord'):
    if known in formats:
      return known
  raise UserError(
      f'{folder} holds {" and ".join(formats)} files; expected ArrayRecord or '
      f'TFRecord. Convert them once, which adds files, with\n{_INSTALL}'
      f'  tfds convert_format --dataset_version_dir={folder} '
      '--out_file_format=array_record')


def open_records(folder: epath.Path) -> tuple[dict[str, Any], Any]:
  """Returns each split's serialised examples by index, and their features.

  Raises:
    UserError: if files of a split are missing.
  """
  from array_record.python import array_record_data_source
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  form, found = file_format(folder), dict[str, Any]()
  # Reads only the files, because the builder's own code needs TensorFlow.
  with exceptions.naming(os.fspath(folder)):
    builder = tfds.builder_from_directory(folder)
    splits = {split: info.replace(
        filename_template=info.filename_template.replace(filetype_suffix=form))
              for split, info in builder.info.splits.items()}
  for split, info in splits.items():
    paths = [path for path, count in zip(
        info.filepaths, info.shard_lengths, strict=True) if count]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
      raise UserError(
          f'{len(missing)} of {len(paths)} files are missing in {folder}: '
          f'{files.shorten(missing)}. Copy them there, or prepare the '
          'dataset again.')
    if form == 'tfrecord':
      found[split] = registry.load(registry.TFRECORDS)(
          paths, counts=[*filter(None, info.shard_lengths)])
    else:  # ArrayRecordDataSource fails without files, and opens them later.
      found[split] = array_record_data_source.ArrayRecordDataSource(
          info.file_instructions) if paths else ()
  return found, builder.info.features
