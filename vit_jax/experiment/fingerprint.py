"""Checks that all processes of a run have the same config, code and data.

Processes with different batch sizes or seeds would train together without an
error, or wait for each other forever.
"""

from collections.abc import Mapping
import hashlib
import importlib.metadata
import pathlib
import platform
from typing import Any
import zlib

import flax.traverse_util

from vit_jax import data
from vit_jax import fields
from vit_jax.experiment import config as config_lib
from vit_jax.parallel import coordination

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy',
            'grain')
NUM_KEYS = 1000  # Examples whose keys are compared.


def check_config(config: config_lib.Config) -> None:
  """Raises UserError in all processes if configs or versions differ."""
  if not coordination.is_distributed():
    return
  plain = flax.traverse_util.flatten_dict(config_lib.to_plain(config))
  coordination.check_equal('config', {
      **{'.'.join(('config', *path)): value for path, value in plain.items()
         # Such as the folder of the data, and the number of threads.
         if not (path[0] == 'data'
                 and fields.on_change(config, path) == fields.FREE)},
      **_versions()})


def check_data(dataset: data.Dataset) -> None:
  """Raises UserError in all processes if the data differ."""
  if not coordination.is_distributed():
    return
  count = dataset.num_examples
  keys = ''.join(dataset.source.key(i) for i in range(
      0, count, max(1, count // NUM_KEYS)))
  names = '\n'.join(dataset.class_names or ())
  what = f'of {dataset.split!r} of {dataset.name}'
  coordination.check_equal('data', {
      f'number of examples {what}': count,
      f'number of classes {what}': dataset.num_classes,
      f'further fields {what}': ','.join(sorted(dataset.fields)),
      f'checksum of the class names {what}': zlib.crc32(
          names.encode(errors='surrogatepass')),
      f'checksum of the examples {what}': zlib.crc32(
          keys.encode(errors='surrogatepass'))})


def _versions() -> Mapping[str, Any]:
  code = hashlib.sha256()
  root = pathlib.Path(__file__).parents[1]
  for path in sorted(root.rglob('*.py')):
    code.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
  return {'version of Python': platform.python_version(),
          **{f'version of {name}': importlib.metadata.version(name)
             for name in PACKAGES},
          'SHA-256 of vit_jax/': code.hexdigest()[:16]}
