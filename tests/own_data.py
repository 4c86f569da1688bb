"""Writes and opens a user's own dataset."""

import io
import os
import shlex
import tarfile

import numpy as np

from vit_jax import data
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import open_source


def write(root, *names):
  """Writes files whose content is their name: opening decodes no image."""
  for name in names:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(os.fsencode(name))


def write_folders(root, *folders, count=3):
  """Writes images in each folder, which are called 0.png, 1.png, ..."""
  write(root, *(f'{folder}/{i}.png' for folder in folders
                for i in range(count)))


def write_table(root, header, rows, *, name='labels.csv', images=True):
  """Writes a table, and its images, whose paths are the first cells."""
  rows = [row if isinstance(row, str) else ','.join(map(str, row))
          for row in rows]
  if images:
    write(root, *(row.split(',')[0] for row in rows))
  (root / name).parent.mkdir(parents=True, exist_ok=True)
  (root / name).write_text('\n'.join([header, *rows, '']))
  return root / name


def write_tar(path, members):
  """Writes a tar of names and contents, which may be text."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with tarfile.open(path, 'w') as tar:
    for name, content in members:
      content = content.encode() if isinstance(content, str) else content
      member = tarfile.TarInfo(name)
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))
  return path


def open_path(
    source, target='', *, labelled=True, group='', divided_groups='error',
    **table):
  """Opens files; images without labels are an error if they are `labelled`."""
  opened = open_source.open_path(str(source), columns_lib.LabelConfig(
      target, columns_lib.TableConfig(**table), group=group,
      divided_groups=divided_groups))
  if labelled and opened.no_labels:
    raise ValueError(opened.no_labels)
  return opened


def open_splits(path, **flags):
  """Opens `data.source` with flags such as {'table.label': 'a'}."""
  section = {'source': str(path), 'table': {}}
  for name, value in flags.items():
    parent, _, key = name.rpartition('.')
    (section['table'] if parent else section)[key] = value
  opened = open_source.open_splits(data.parse(section))
  if opened.no_labels and section.get('target') not in ('none', 'masks'):
    raise ValueError(opened.no_labels)
  return opened


def paste(error):
  """Returns the first flags that an error prints to be pasted."""
  line = next(line for line in str(error).splitlines()
              if line.startswith('  --config.data.'))
  return dict(flag.removeprefix('--config.data.').split('=', 1)
              for flag in shlex.split(line))


def images(opened):
  """Returns the label, by name, of each image by its content."""
  names = opened.class_names

  def plain(label):
    if opened.targets:
      return np.asarray(label).tolist()
    return sorted(names[i] for i in label) if opened.multi_label else (
        names[label] if names else label)

  return {source[i]['image'].decode(): plain(source.label(i)) for source in
          opened.splits.values() for i in range(len(source))}


def labels(opened):
  """Returns the label by key, over all splits."""
  return {source.key(i): source[i]['label'] for source in
          opened.splits.values() for i in range(len(source))}


def keys(opened):
  """Returns the sorted keys by split."""
  return {split: tuple(sorted(source.key(i) for i in range(len(source))))
          for split, source in opened.splits.items()}


def sizes(opened):
  return {split: len(source) for split, source in opened.splits.items()}
