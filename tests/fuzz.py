"""Feeds damaged images and weights, which are untrusted, to their readers.

    FUZZ_EXAMPLES=5000 python -m pytest tests/test_untrusted.py

A reader returns a result, or raises an error that `main.py` prints without a
traceback. Without the variable, the test reads few files, always the same.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import functools
import importlib
import json
import pathlib
import re
import tempfile

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests import hostile
from tests import random_models
from vit_jax import __main__ as main
from vit_jax import registry
from vit_jax.data.images import decode
from vit_jax.weights import declared
from vit_jax.weights import open as open_lib
from vit_jax.weights.formats import npz

# They replace words of a file, and some are not valid there.
WORDS = tuple(word.encode() for word in (
    '', 'null', 'true', '-1', '0', str(2**63), '9' * 5000, '1e999', 'NaN', '""',
    '../1.png', '\\ud800', 'e\u0301', '"', '[]', '{}', '{"a": [1]}',
    '[' * 500 + ']' * 500))
BYTES = (b'\xff' * 4, b'\0' * 4, b'\x7f' + b'\xff' * 3, b'\x80')
WORD = re.compile(rb'"[^"]*"|[\w.+-]+')


@contextlib.contextmanager
def explained(errors=(ValueError, OSError)):
  """Suppresses errors that `main.py` prints without a traceback."""
  try:
    yield
  except errors as error:
    assert main.message_for_user(error), 'the error has a traceback'


def read_image(path):
  content = path.read_bytes()
  # A ValueError, because training skips no image for another error.
  for channels, mode in ((1, 'L'), (3, 'RGB')):
    with explained(ValueError):
      image = decode.decode(content, channels=channels, max_pixels=2**20)
      assert image.mode == mode and 0 < image.width * image.height <= 2**20
  with explained(ValueError):
    pixels = np.asarray(decode.decode(
        content, channels=3, dtype='float32', max_pixels=2**20))
    assert pixels.dtype == np.float32 and pixels.shape[2] == 3


def read_weights(path):
  with explained():
    open_lib.open(path, log=None)


def text(value):
  return json.dumps(value).encode()


def weights_file(module, arrays):
  """Returns the content of the file that a format writes."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, 'x')
    module.write(path, arrays)
    return path.read_bytes()


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
  """Reads one damaged file, which may lie beside valid ones."""
  file: str
  read: Callable[[pathlib.Path], object]
  valid: Sequence[bytes]  # Contents that are mutated.
  others: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

  def open(self, content):
    """Raises an AssertionError unless the file is read or explained."""
    with tempfile.TemporaryDirectory() as folder:
      for name, other in {**self.others, self.file: content}.items():
        pathlib.Path(folder, name).write_bytes(other)
      self.read(pathlib.Path(folder, self.file))

  def check(self, **settings):
    """Opens many files; an error shows the smallest that it found."""
    hypothesis.settings(
        deadline=None, database=None,
        suppress_health_check=list(hypothesis.HealthCheck), **settings)(
            hypothesis.given(mutated(self.valid))(self.open))()


@functools.cache
def readers():
  """Returns the readers by name."""
  file = weights_file(npz, random_models.arrays('npz'))
  found = {
      'image': Reader('x', read_image, list(hostile.good().values())),
      'npz': Reader('x.npz', read_weights, [file]),
      'metadata': Reader(
          'x.json', lambda path: read_weights(path.with_suffix('.npz')),
          [text(declared.metadata(random_models.make_tiny()))],
          {'x.npz': file})}
  if registry.exists(registry.FOREIGN):
    hostile_files = importlib.import_module('tests.extras.zoo.hostile_files')
    found |= hostile_files.readers()
  return found
