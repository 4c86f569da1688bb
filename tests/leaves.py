"""Leaves in vit_jax/extras, of which each may be deleted."""

import contextlib

import pytest

from vit_jax import registry


def has(target):
  """Whether the leaf of a target exists; yes for targets in the trunk."""
  package, extras, leaf = target.partition(':')[0].split('.')[:3]
  return extras != 'extras' or registry.exists(f'{package}.extras.{leaf}')


MIXUP = 0.2 * has(registry.MIXERS['mixup'])  # A value of `data.mixup`.
COMMANDS = [name for name, target in registry.COMMANDS.items() if has(target)]


@contextlib.contextmanager
def skip_deleted():
  """Skips a test whose config needs a leaf that has been deleted."""
  try:
    yield
  except ValueError as error:
    cause: BaseException | None = error
    while cause and not isinstance(cause, registry.DeletedError):
      cause = cause.__cause__
    if not cause:
      raise
    pytest.skip(str(error))
