"""The web server and the cache of the tests of weights, and golden files."""

import json
import pathlib
import zlib

import numpy as np
import pytest

from tests.weights.conftest import cache  # noqa: F401
from tests.weights.conftest import cached_files  # noqa: F401
from tests.weights.conftest import site  # noqa: F401

GOLDEN = pathlib.Path(__file__).parents[2] / 'golden'


def noise(name, shape):
  seed = zlib.crc32(name.encode()) & 0x7fffffff
  return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def weight_of_jax(name, shape):
  last = name.split('/')[-1]
  if last == 'scale':
    return 1 + 0.1 * noise(name, shape)
  if last == 'kernel':
    axes = len(shape) - 1
    if len(shape) == 3:  # Attention: heads are inputs of `out` alone.
      axes = 2 if '/out/' in name else 1
    return noise(name, shape) / np.sqrt(np.prod(shape[:axes]))
  return (0.5 if last in ('pos_embedding', 'cls') else 0.1) * noise(name, shape)


def weight_of_torch(name, shape):
  if any(part in name for part in (
      'pos_embed', 'cls_token', 'position_embeddings')):
    return 0.5 * noise(name, shape)
  if len(shape) == 1:
    return (1 + 0.1 * noise(name, shape) if name.endswith('weight')
            else 0.1 * noise(name, shape))
  return noise(name, shape) / np.sqrt(np.prod(shape[1:]))


@pytest.fixture(scope='session')
def golden():
  """Returns a function from a file name to its arrays, images and logits."""
  def of(name):
    with np.load(GOLDEN / f'{name}.npz') as file:
      keys, logits = json.loads(str(file['keys'])), file['logits']
      height, width = np.broadcast_to(file.get('size', 224), 2)
    of_torch = name.split('/')[-1].startswith(('timm-', 'hf-', 'torch-'))
    rule = weight_of_torch if of_torch else weight_of_jax
    arrays = {key: np.asarray(rule(key, shape), np.float32)
              for key, shape in keys.items()}
    shape = (2, 3, height, width) if of_torch else (2, height, width, 3)
    images = np.random.RandomState(0).uniform(-1, 1, shape).astype(np.float32)
    return (arrays, images.transpose(0, 2, 3, 1) if of_torch else images,
            logits)
  return of
