"""Memory per example of each kind of data source, and the time to open it.

    python benchmarks/scale.py --counts 20000 200000 --sources parquet tar

Writes synthetic data sets of tiny images, opens each in a fresh process by
`data.open_dataset`, reads a training batch, and prints the slope of the
resident memory between the two counts. Tars are indexed before. The default
takes about 90 seconds on 2 cores.
"""

import argparse
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy as np
from PIL import Image
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).parents[1]
NUM_CLASSES, SHARD = 1000, 20_000
LINKS = 10_000  # Per file; ext4 allows 65,000.
SELECTIONS = {
    'open': {}, 'fraction': {'fraction': 0.5},
    'per class': {'examples_per_class': 5}, 'weights': {'sampling': 'balanced'}}


def png():
  """Returns the smallest image file."""
  file = io.BytesIO()
  Image.new('L', (1, 1)).save(file, 'png')
  return file.getvalue()


def write_parquet(folder, count):
  """Writes shards of images and class names."""
  for first in range(0, count, SHARD):
    rows = range(first, min(count, first + SHARD))
    pq.write_table(pa.table({
        'image': [png()] * len(rows),
        'label': [f'class {i % NUM_CLASSES}' for i in rows]}),
        folder / f'{first:09}.parquet', row_group_size=1000)
  return folder


def write_tar(folder, count):
  """Writes shards of an image and a class index for each key."""
  for first in range(0, count, SHARD):
    with tarfile.open(folder / f'{first:09}.tar', 'w') as tar:
      for i in range(first, min(count, first + SHARD)):
        for kind, content in (('png', png()),
                              ('cls', str(i % NUM_CLASSES).encode())):
          member = tarfile.TarInfo(f'{i:09}.{kind}')
          member.size = len(content)
          tar.addfile(member, io.BytesIO(content))
      tar.members.clear()
  return folder


def write_folders(folder, count):
  """Writes class folders of hard links to a few files."""
  for i in range(NUM_CLASSES):
    (folder / f'class {i}').mkdir()
  for i in range(count):
    original = folder / f'.{i // LINKS}.png'
    if not i % LINKS:
      original.write_bytes(png())
    os.link(original, folder / f'class {i % NUM_CLASSES}' / f'{i:09}.png')
  return folder


def write_csv(folder, count):
  """Writes class folders and a table of their images."""
  write_folders(folder, count)
  table = folder / 'labels.csv'
  table.write_text('path,label\n' + ''.join(
      f'class {i % NUM_CLASSES}/{i:09}.png,class {i % NUM_CLASSES}\n'
      for i in range(count)))
  return table


WRITERS = {'parquet': write_parquet, 'tar': write_tar, 'csv': write_csv,
           'folders': write_folders}


def measure(source, selection):
  """Prints the memory and seconds of this process up to the first batch."""
  sys.path.insert(0, os.fspath(ROOT))
  from vit_jax import data
  section = {'source': source, 'resolution': 8, 'num_workers': 0,
             **SELECTIONS[selection]}
  config = data.parse(section)
  begin = time.perf_counter()
  batches = data.train_batches(
      config, data.open_dataset(config), seed=0, batch_size=64)
  next(batches)
  secs = time.perf_counter() - begin
  process = psutil.Process()
  print(json.dumps({
      'secs': secs, 'bytes': process.memory_info().rss,
      'peak': int(pathlib.Path('/proc/self/status').read_text().split(
          'VmHWM:')[1].split()[0]) * 1024}))


def start(path, cache, selection):
  """Returns the figures of a fresh process."""
  out = subprocess.run(
      [sys.executable, __file__, '--measure', path, selection],
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'HF_DATASETS_CACHE': cache},
      check=True, stdout=subprocess.PIPE, text=True).stdout
  return json.loads(out.splitlines()[-1])


def main():
  """Prints a row for each source and selection."""
  parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
  parser.add_argument('--counts', type=int, nargs=2, default=(20_000, 200_000))
  parser.add_argument('--sources', nargs='+', default=list(WRITERS))
  parser.add_argument('--selections', nargs='+', default=['open'])
  parser.add_argument('--measure', nargs=2)
  args = parser.parse_args()
  if args.measure:
    measure(*args.measure)
    return
  print('| source | selection | bytes per example | at the peak | seconds |')
  print('|---|---|---|---|---|')
  for source in args.sources:
    with tempfile.TemporaryDirectory() as folder:
      paths = []
      for count in args.counts:
        place = pathlib.Path(folder, str(count))
        place.mkdir()
        paths.append(os.fspath(WRITERS[source](place, count)))
        start(paths[-1], folder, 'open')  # Writes indices and caches.
      for selection in args.selections:
        found = [start(path, folder, selection) for path in paths]
        slopes = [np.diff([row[key] for row in found]).item() / (
            args.counts[1] - args.counts[0]) for key in ('bytes', 'peak')]
        print(f'| {source} | {selection} | {slopes[0]:.0f} | '
              f'{slopes[1]:.0f} | {found[-1]["secs"]:.1f} |', flush=True)


if __name__ == '__main__':
  main()
