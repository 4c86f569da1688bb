"""Memory per example of each kind of data source, and the time to open it.

    python benchmarks/scale.py --counts 20000 200000 --sources parquet tar
    python benchmarks/scale.py --runs

Writes synthetic data sets of tiny images, opens each in a fresh process by
`data.open_dataset`, reads a training batch, and prints the slope of the
resident memory between the two counts: private memory, and pages of mapped
files, which processes share and the system takes back when it needs memory.
Archives are indexed, and Parquet is converted, before. Class folders are hard
links of a few files. Peak and seconds are those of the larger count, first of
the processor, then of the clock, which includes other programs. The default
takes about 3 minutes on 2 cores.

`--runs` prints the seconds of what could grow with the length of a run: reading
its log, writing a line, drawing its curves, listing its checkpoints, 1,000
evaluations, and an evaluation with 21,843 classes.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy as np
from PIL import Image
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).parents[1]
NUM_CLASSES, SHARD = 1000, 20_000
LINKS = 10_000  # Per file; ext4 allows 65,000.
MANY = 300_000_000  # Images of JFT-300M.
IMAGES = 50_000  # Of a run with many classes.
CONFIG = """
from ml_collections import ConfigDict

def get_config():
  return ConfigDict({{
      'model': {{'width': 32, 'depth': 1, 'mlp_dim': 32, 'num_heads': 1,
                'patch': 8}},
      'data': {{'source': '{source}', 'resolution': 8, 'num_workers': 0}},
      'optimizer': {{'name': 'sgd', 'learning_rate': 0.1,
                    'schedule': {{'name': 'constant'}}}},
      'batch_size': 64, 'total': {{'steps': 2}},
      'evals': {{'test': {{'batch_size': 500}}}}}})
"""
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
  blocks = []
  for kind, content in (('png', png()), ('cls', b'0000')):
    member = tarfile.TarInfo(f'{0:09}.{kind}')
    member.size = len(content)
    blocks.append(np.frombuffer(member.tobuf() + content.ljust(512, b'\0'),
                                np.uint8))
  empty = np.concatenate(blocks)
  for first in range(0, count, SHARD):
    rows = np.arange(first, min(count, first + SHARD))
    members = np.tile(empty, (len(rows), 1))
    digits = rows[:, None] // 10**np.arange(9)[::-1] % 10
    labels = rows[:, None] % NUM_CLASSES // 10**np.arange(4)[::-1] % 10
    members[:, 1536:1540] += labels.astype(np.uint8)
    for header in (0, 1024):  # Header and content have 512 bytes each.
      members[:, header:header + 9] += digits.astype(np.uint8)
      # The checksum is a sum of bytes: six octal digits.
      old = int(bytes(empty[header + 148:header + 154]), 8)
      total = old + digits.sum(axis=1, keepdims=True)
      members[:, header + 148:header + 154] = (
          total // 8**np.arange(6)[::-1] % 8 + ord('0'))
    (folder / f'{first:09}.tar').write_bytes(
        members.tobytes() + bytes(2 * 512))
  return folder


def write_array_record(folder, count, form='array_record'):
  """Writes shards as TensorFlow Datasets does."""
  from array_record.python import array_record_module
  import tensorflow_datasets as tfds
  from tensorflow_datasets.proto import tf_example_pb2
  sys.path.insert(0, os.fspath(ROOT))
  from vit_jax.data.sources import tfrecords
  folder = folder / 'tiny' / '1.0.0'
  folder.mkdir(parents=True)
  starts = range(0, count, SHARD)
  lengths = [min(count - first, SHARD) for first in starts]
  (folder / 'dataset_info.json').write_text(json.dumps({
      'name': 'tiny', 'version': '1.0.0', 'fileFormat': form, 'splits': [{
          'name': 'train', 'numBytes': '1', 'shardLengths': lengths,
          'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}',
      }]}))
  tfds.features.FeaturesDict({
      'image': tfds.features.Image(shape=(None, None, 1)),
      'label': tfds.features.ClassLabel(num_classes=NUM_CLASSES)}).save_config(
          folder)
  records = []
  for label in range(NUM_CLASSES):
    example = tf_example_pb2.Example()
    example.features.feature['image'].bytes_list.value.append(png())
    example.features.feature['label'].int64_list.value.append(label)
    records.append(example.SerializeToString())
  framed = [b''.join(
      part + struct.pack('<I', tfrecords.masked_crc(part))
      for part in (struct.pack('<Q', len(record)), record))
            for record in records]
  for shard, (first, length) in enumerate(zip(starts, lengths)):
    path = folder / f'tiny-train.{form}-{shard:05}-of-{len(starts):05}'
    labels = [i % NUM_CLASSES for i in range(first, first + length)]
    if form == 'tfrecord':
      path.write_bytes(b''.join(framed[label] for label in labels))
      continue
    writer = array_record_module.ArrayRecordWriter(
        os.fspath(path), 'group_size:1')
    for label in labels:
      writer.write(records[label])
    writer.close()
  return folder


def write_tfrecord(folder, count):
  """Writes shards as TensorFlow Datasets does."""
  return write_array_record(folder, count, form='tfrecord')


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
  with open(table, 'w') as file:
    file.write('path,label\n')
    file.writelines(
        f'class {i % NUM_CLASSES}/{i:09}.png,class {i % NUM_CLASSES}\n'
        for i in range(count))
  return table


WRITERS = {
    'array_record': write_array_record, 'tfrecord': write_tfrecord,
    'tar': write_tar, 'parquet': write_parquet, 'csv': write_csv,
    'folders': write_folders}


def measure(source, selection):
  """Prints the memory and seconds of this process up to the first batch."""
  sys.path.insert(0, os.fspath(ROOT))
  import cloudpickle

  from vit_jax import data
  section = {'source': source, 'resolution': 8, 'num_workers': 0,
             **SELECTIONS[selection]}
  config = data.parse(section)
  begin, wall = time.process_time(), time.perf_counter()
  dataset = data.open_dataset(config)
  batches = data.train_batches(config, dataset, seed=0, batch_size=64)
  next(batches)
  secs, wall = time.process_time() - begin, time.perf_counter() - wall
  status = pathlib.Path('/proc/self/status').read_text()
  print(json.dumps({
      'secs': secs, 'wall': wall, 'pickled': len(cloudpickle.dumps(dataset)),
      **{name: int(status.split(f'{name}:')[1].split()[0]) * 1024
         for name in ('RssAnon', 'RssFile', 'VmHWM')}}))


def start(path, cache, selection):
  """Returns the figures of a fresh process."""
  out = subprocess.run(
      [sys.executable, __file__, '--measure', path, selection],
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'HF_DATASETS_CACHE': cache,
           'XDG_CACHE_HOME': cache},
      check=True, stdout=subprocess.PIPE, text=True).stdout
  return json.loads(out.splitlines()[-1])


def print_row(*cells):
  print('|', ' | '.join(map(str, cells)), '|', flush=True)


def measure_sources(args):
  """Prints a row for each source and selection."""
  low, high = args.counts
  print_row('source', 'selection', 'private bytes per example',
            'mapped from files', 'copied to a worker',
            f'private GB at {MANY:,}, extrapolated', f'peak GB at {high:,}',
            'CPU seconds', 'seconds')
  print_row(*['---'] * 9)
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
        private, mapped, copied = (
            np.diff([row[key] for row in found]).item() / (high - low)
            for key in ('RssAnon', 'RssFile', 'pickled'))
        print_row(
            source, selection, f'{private:.1f}', f'{mapped:.1f}',
            f'{copied:.1f}', f'{private * MANY / 1e9:.2g}',
            f'{found[-1]["VmHWM"] / 1e9:.2f}',
            *(f'{found[-1][key]:.1f}' for key in ('secs', 'wall')))


def timed(function):
  """Returns the CPU seconds of a call, as text."""
  begin = time.process_time()
  function()
  return f'{time.process_time() - begin:.3g}'


def time_log(folder, count):
  """Yields names and seconds of using a log of `count` rows."""
  from vit_jax.analysis import plots
  from vit_jax.run import writer as writer_lib
  folder.mkdir()
  names = [f'train/metric_{i}' for i in range(8)]
  with open(folder / writer_lib.FILENAME, 'w') as file:
    for step in range(1, count + 1):
      row = {'step': step, 'train/loss': 1 / step,
             **dict.fromkeys(names, 1.5)}
      if step % 100 == 0:  # An evaluation.
        row |= {'val/loss': 2 / step, 'val/accuracy': 0.5}
      file.write(json.dumps(row) + '\n')
  writers = []
  yield 'log: open', timed(lambda: writers.append(
      writer_lib.MetricWriter(folder, resume_step=count)))
  yield 'log: write a line', timed(
      lambda: writers[0].write(count + 1, {'train/loss': 1.0}))
  writers[0].close()
  yield 'log: draw curves', timed(lambda: plots.curves(
      {'run': writer_lib.read_rows(folder)}, folder / 'curves.png'))


def time_checkpoints(folder, count):
  """Yields names and seconds of a run that keeps `count` checkpoints."""
  import jax
  import jax.numpy as jnp

  from vit_jax import types
  from vit_jax.checkpoints import config as checkpoint_config
  from vit_jax.checkpoints import manager
  config = checkpoint_config.CheckpointConfig(keep=count)
  state = types.TrainState(
      step=jnp.asarray(1), params={'w': jnp.ones(3)}, opt_state=(),
      average=None, metrics={})
  save = lambda step: checkpoints.save(
      state.replace(step=jnp.asarray(step)), config={}, progress={})
  with manager.Checkpoints(folder, config) as checkpoints:
    save(1)
  first, = (folder / 'checkpoints' / 'latest').iterdir()
  for step in range(2, count + 1):
    shutil.copytree(first, first.with_name(str(step)), copy_function=os.link)
  opened = []
  yield 'checkpoints: open', timed(
      lambda: opened.append(manager.Checkpoints(folder, config)))
  checkpoints = opened[0]
  abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=leaf.sharding), state)
  yield 'checkpoints: restore', timed(lambda: checkpoints.restore(abstract))
  yield 'checkpoints: save one more', timed(
      lambda: (save(count + 1), checkpoints.wait()))
  checkpoints.__exit__(None)


def time_classes(folder, count):
  """Yields the seconds of two steps and an evaluation with many classes."""
  folder.mkdir()
  pq.write_table(pa.table({
      'image': [png()] * IMAGES,
      'label': [f'class {i % count}' for i in range(IMAGES)]}),
      folder / 'images.parquet')
  config = folder / 'config.py'
  config.write_text(CONFIG.format(source=folder / 'images.parquet'))
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  subprocess.run(
      [sys.executable, os.fspath(ROOT / 'main.py'), 'train',
       f'--config={config}', f'--workdir={folder / "run"}'], check=True,
      stdout=sys.stderr, env={
          **os.environ, 'JAX_PLATFORMS': 'cpu',
          'HF_DATASETS_CACHE': os.fspath(folder)})
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  yield 'classes: start, train 2 steps, evaluate', (
      f'{after.ru_utime - before.ru_utime:.3g}')


def time_evaluations(folder, count):
  """Yields the seconds of `count` steps with an evaluation after each."""
  import vit_jax
  every = {'every': {'steps': 1}}
  with contextlib.redirect_stdout(sys.stderr):
    experiment = vit_jax.build({
        'total': {'steps': count}, 'batch_size': 8,
        'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
                  'patch': 4},
        'data': {'source': 'digits', 'resolution': 8, 'num_workers': 0},
        'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                      'schedule': {'name': 'constant'}},
        'evals': {'test': {'split': 'test[:32]', 'batch_size': 32, **every}},
        'log': every, 'checkpoint': {'best': ''}})
    yield 'evaluations: train, evaluate after each step', timed(
        lambda: vit_jax.train(experiment, folder))


def measure_runs():
  """Prints the seconds of runs with few and many rows, steps or classes."""
  sys.path.insert(0, os.fspath(ROOT))
  print_row('', 'few', 'CPU seconds', 'many', 'CPU seconds')
  print_row(*['---'] * 5)
  for function, counts in ((time_log, (10_000, 100_000)),
                           (time_checkpoints, (10, 1000)),
                           (time_evaluations, (100, 1000)),
                           (time_classes, (1000, 21_843))):
    with tempfile.TemporaryDirectory() as folder:
      few, many = (list(function(pathlib.Path(folder, str(count)), count))
                   for count in counts)
      for (name, low), (_, high) in zip(few, many):
        print_row(name, f'{counts[0]:,}', low, f'{counts[1]:,}', high)


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
  parser.add_argument('--counts', type=int, nargs=2, default=(20_000, 200_000))
  parser.add_argument('--sources', nargs='+', default=list(WRITERS))
  parser.add_argument('--selections', nargs='+', default=['open'])
  parser.add_argument('--runs', action='store_true')
  parser.add_argument('--measure', nargs=2, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.measure:
    measure(*args.measure)
  elif args.runs:
    measure_runs()
  else:
    measure_sources(args)


if __name__ == '__main__':
  main()
