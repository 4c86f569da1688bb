"""Feeds hostile files to every reader of untrusted files.

    nice python -m tests.fuzz --minutes=10

A reader returns a result, or raises an error that `main.py` prints without a
traceback, within limits on time and memory. `tests/test_hostile_inputs.py` runs
some of the same inputs, and those that once failed.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import contextlib
import csv
import dataclasses
import functools
import importlib
import io
import json
import os
import pathlib
import re
import signal
import tarfile
import tempfile
import time
import traceback
from unittest import mock

from etils import epath
import hypothesis
from hypothesis import strategies as st
import numpy as np
from PIL import Image
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow_datasets as tfds

from tests import hostile
from tests import leaves
from tests import pictures
from tests import random_models
from tests import tfds_files
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax import registry
from vit_jax import schema
from vit_jax.data import examples
from vit_jax.data.images import decode
from vit_jax.data.sources import open_source
from vit_jax.inference import load as load_lib
from vit_jax.run import workdir as workdir_lib
from vit_jax.run import writer as writer_lib
from vit_jax.weights import open as open_lib
from vit_jax.weights.formats import npz

MAX_SECS, MAX_BYTES = 5, 500 * 2**20
PEAK = pathlib.Path('/proc/self/status')
ROWS = 12
PNG = pictures.encode(Image.new('RGB', (4, 4)))
IMAGES = {f'{i}.png': PNG for i in range(ROWS)}


class TimeExceeded(BaseException):
  """Not an Exception, which a reader would report as a damaged file."""


@contextlib.contextmanager
def limited(max_bytes=MAX_BYTES):
  """Raises an AssertionError for errors with tracebacks, and beyond limits."""
  def stop(signum, frame):
    raise TimeExceeded

  if PEAK.exists():  # On Linux.
    PEAK.with_name('clear_refs').write_text('5')  # Resets the peak.
  allowed = _peak_bytes() + max_bytes
  old = signal.signal(signal.SIGALRM, stop)
  signal.setitimer(signal.ITIMER_REAL, MAX_SECS)
  try:
    with explained():
      yield
  except TimeExceeded:
    raise AssertionError(f'it took more than {MAX_SECS} s') from None
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)
  assert _peak_bytes() <= allowed


def _peak_bytes():
  if not PEAK.exists():
    return 0
  return 1024 * int(re.search(r'VmHWM:\s*(\d+) kB', PEAK.read_text())[1])


@contextlib.contextmanager
def explained(errors=(ValueError, OSError)):
  """Suppresses errors that `main.py` prints without a traceback."""
  try:
    yield
  except errors as error:
    assert main.message_for_user(error), 'the error has a traceback'


def read_data(path):
  """Opens a dataset, and reads the first images and labels of each split."""
  config = data.parse({'source': str(path), 'resolution': 4, 'mean': 0.0,
                       'std': 1.0, 'max_pixels': 2**16})
  for split in open_source.open_splits(config).splits:
    dataset = data.open_dataset(config, split=split)
    load = examples.LoadExample(dataset, config, train=False)
    for index in range(min(len(dataset), 2 * ROWS)):
      with explained():
        dataset.source.label(index)
      with explained():
        load(index, np.random.default_rng(0))


def read_parquet(path):
  import datasets  # Takes seconds.
  datasets.disable_progress_bars()
  with mock.patch.object(
      datasets.config, 'HF_DATASETS_CACHE', path.parent / 'cache'):
    read_data(path)


def read_folder(path):
  """Creates files with the names in a file, and reads them as a dataset."""
  for name in path.read_bytes().split(b'\n'):
    file = os.fsencode(path.parent) + b'/data/' + name
    with contextlib.suppress(OSError, ValueError):  # Not a name.
      os.makedirs(os.path.dirname(file), exist_ok=True)
      pathlib.Path(os.fsdecode(file)).write_bytes(PNG)
  read_data(path.parent / 'data')


def read_image(path):
  content = path.read_bytes()
  try:
    for channels, mode in ((1, 'L'), (3, 'RGB')):
      with explained(ValueError):
        image = decode.decode(content, channels=channels, max_pixels=2**20)
        assert image.mode == mode and 0 < image.width * image.height <= 2**20
    pixels = np.asarray(decode.decode(
        content, channels=3, dtype='float32', max_pixels=2**20))
    assert pixels.dtype == np.float32 and pixels.shape[2] == 3
  except OSError as error:  # Training would not skip the image.
    raise AssertionError('not a ValueError') from error


def read_flag(path):
  text = schema.FlagText(path.read_bytes().decode(errors='replace'))
  for hint in (int, float, str, tuple[int, ...], schema.Duration | None):
    with explained():
      schema.convert(text, hint, where='flag')


def read_weights(path):
  open_lib.open(path, log=None)


def read_run(path):
  """Loads the run that a file of a checkpoint belongs to."""
  run = next(parent for parent in path.parents if parent.name == 'run')
  load_lib.load(run)


def text(value):
  return json.dumps(value).encode()


def csv_file(rows):
  stream = io.StringIO()
  csv.writer(stream).writerows(rows)
  return stream.getvalue().encode()


def tar_file(members):
  stream = io.BytesIO()
  with tarfile.open(fileobj=stream, mode='w') as tar:
    for name, content in members:
      member = tarfile.TarInfo(name)
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))
  return stream.getvalue()


def parquet_file(table, metadata=None):
  stream = io.BytesIO()
  table = pa.table(table)
  pq.write_table(table.replace_schema_metadata(metadata), stream)
  return stream.getvalue()


def written(write):
  """Returns the content by path of the files that a function writes."""
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    write(folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob('*') if path.is_file()}


def weights_file(module, arrays):
  return written(lambda folder: module.write(folder / 'x', arrays))['x']


def tfds_dataset(form):
  """Returns the files of a TFDS dataset by name."""
  files = written(lambda folder: tfds_files.write(
      folder, 'tiny', '1.0.0',
      {'image': tfds.features.Image(shape=(None, None, 3)),
       'label': tfds.features.ClassLabel(num_classes=2)},
      {'train': [{'image': [PNG], 'label': [i % 2]} for i in range(ROWS)]},
      form=form))
  return {pathlib.Path(path).name: content for path, content in files.items()}


# They replace words of a file, and some are not valid there.
WORDS = tuple(word.encode() for word in (
    '', 'null', 'true', '-1', '0', str(2**63), str(10**11), '9' * 23,
    '9' * 5000, '1e300', '1e999', 'NaN', '""', '"a"', 'train', '"1.png"',
    '../1.png', '/dev/zero', 'http://x/1.png', 'gs:/x', '\\ud800', 'é',
    'e\u0301', '=1', 'a|b', '"', '[]', '{}', '{"a": [1]}',
    '[' * 500 + ']' * 500))
BYTES = (b'\xff' * 4, b'\0' * 4, b'\x7f' + b'\xff' * 3, b'\x80')
WORD = re.compile(rb'"[^"]*"|[\w.+-]+')


@st.composite
def mutated(draw, files):
  """Draws a file with a few words or bytes replaced, inserted or cut."""
  content = draw(st.sampled_from(files))
  for _ in range(draw(st.integers(1, 4))):
    spans = [match.span() for match in WORD.finditer(content[:10_000])]
    if spans and draw(st.booleans()):
      start, end = draw(st.sampled_from(spans))
      new = draw(st.sampled_from(WORDS))
    else:
      # Headers are the most sensitive.
      start = draw(st.one_of(st.integers(0, min(80, len(content))),
                             st.integers(0, len(content))))
      new = draw(st.one_of(st.binary(max_size=8), st.sampled_from(BYTES)))
      end = start + draw(st.sampled_from((0, len(new), 64, 1024)))
    content = content[:start] + new + content[end:]
  return content


@dataclasses.dataclass(frozen=True)
class Reader:
  """Reads one hostile file, which may lie beside valid ones."""
  file: str
  read: Callable[[pathlib.Path], object]
  valid: Sequence[bytes]  # Contents that are mutated.
  others: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

  def check(self, content):
    """Raises an AssertionError unless the file is read or explained."""
    with limited():
      self.open(content)

  def open(self, content):
    """Reads a file with this content."""
    with tempfile.TemporaryDirectory() as folder:
      for name, other in {**self.others, self.file: content}.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(other)
      self.read(pathlib.Path(folder) / self.file)


@functools.cache
def readers():
  """Returns the readers by name."""
  in_folder = lambda path: read_data(path.parent)
  labels = [i % 2 for i in range(ROWS)]
  table = csv_file([['path', 'label'], *(
      [f'{i}.png', ('cat', 'dog')[label]] for i, label in enumerate(labels))])
  rows = b'\n'.join(text({'file_name': f'{i}.png', 'label': label})
                    for i, label in enumerate(labels))
  tar = tar_file([(f'{i}.{kind}', content) for i, label in enumerate(labels)
                  for kind, content in (
                      ('png', PNG), ('cls', b'%d' % label),
                      ('json', b'{"label": 1}'))])
  features = {'image': {'_type': 'Image'},
              'label': {'dtype': 'int64', '_type': 'Value'}}
  arrow = parquet_file(
      {'image': [{'bytes': PNG, 'path': ''}] * ROWS, 'label': labels},
      {'huggingface': text({'info': {'features': features}})})
  array_record, tfrecord = map(tfds_dataset, ('array_record', 'tfrecord'))
  run = written(lambda folder: random_models.make(
      dict(random_models.TINY), side=32).save(folder / 'run', form='orbax'))
  parts = {name.split('/', 3)[-1]: name for name in sorted(run)
           if name.endswith((
               '/_CHECKPOINT_METADATA', '/config/metadata',
               '/checksums/metadata', '/_METADATA', '.ocdbt'))}
  # Its own name is random.
  parts['array values'] = max(run, key=lambda name: len(run[name]))
  names = (b'a/1.png', b'b/2.png', b'train/a/1.png', b'train/b/2.png',
           b'test/a/3.png', b'x.png', b'train/1.csv')
  found = {
      'image': Reader('x', read_image, list(hostile.good().values())),
      'csv': Reader('x.csv', read_data, [table], IMAGES),
      'jsonl': Reader('x.jsonl', read_data, [rows], IMAGES),
      'folder': Reader('names', read_folder, [
          b'\n'.join(names[:2]), b'\n'.join(names)]),
      **({'tar': Reader('x.tar', read_data, [tar])} if (
          leaves.has(registry.FILES['tar files'])) else {}),
      **({'parquet': Reader('x.parquet', read_parquet, [arrow])} if (
          leaves.has(registry.FILES['hub'])) else {}),
      **{name.removesuffix('.json'): Reader(
          name, in_folder, [array_record[name]], array_record)
         for name in ('dataset_info.json', 'features.json')},
      **{form: Reader(file, in_folder, [held[file]], held)
         for form, held in (('array_record', array_record), *(
             [('tfrecord', tfrecord)] if leaves.has(registry.TFRECORDS) else []
         )) for file in held if file.startswith('tiny')},
      'npz': Reader('x.npz', read_weights, [weights_file(
          npz, random_models.arrays('npz'))]),
      **{name: Reader(part, read_run, [run[part]], run)
         for name, part in parts.items()},
      'summary': Reader(
          'summary.json', lambda path: workdir_lib.read(
              epath.Path(path)), [b'{"steps": 1}']),
      'metrics': Reader(
          'metrics.jsonl', lambda path: writer_lib.read_rows(path.parent),
          [b'{"step": 1, "train/loss": 2.5}\n']),
      'flag': Reader('x', read_flag, [
          b'3e-4', b'{"epochs": 5}', b'[("a.*", 2), (true, None)]'])}
  if registry.exists(registry.FOREIGN):
    hostile_files = importlib.import_module('tests.extras.zoo.hostile_files')
    found |= hostile_files.readers()
  if 'parquet' in found:
    found['parquet'].open(arrow)  # Imports `datasets`: takes seconds.
  return found


def check(reader, **settings):
  """Reads many files; an error shows the smallest that it found."""
  @hypothesis.settings(
      deadline=None, database=None,
      suppress_health_check=list(hypothesis.HealthCheck), **settings)
  @hypothesis.given(mutated(reader.valid))
  def check_one(content):
    reader.check(content)

  check_one()


def run(minutes):
  """Reads random files; returns the names of the readers that failed."""
  end, failed = time.monotonic() + 60 * minutes, []
  while time.monotonic() < end:
    for name, reader in readers().items():
      if name in failed or time.monotonic() > end:
        continue
      try:
        check(reader, max_examples=200)
      except Exception:
        failed.append(name)
        print(f'{name}: {traceback.format_exc()}', flush=True)
  return failed


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--minutes', type=float, default=10)
  failures = run(parser.parse_args().minutes)
  print(f'{len(failures)} of {len(readers())} readers failed')
  raise SystemExit(bool(failures))
