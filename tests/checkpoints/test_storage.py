"""A failure to write says what, where, why, and what to do."""

import errno
import os

import pytest

from vit_jax.checkpoints import storage


def fail(error, **options):
  with storage.explained('the checkpoint of step 3', '/proc', **options):
    raise error


@pytest.mark.parametrize('error', [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    # As TensorStore says it.
    ValueError('RESOURCE_EXHAUSTED: Error writing "a/b": [OS error 28: ENOSPC '
               'No space left on device]'),
])
def test_a_full_disk_says_how_much_is_free_and_needed(error):
  with pytest.raises(storage.StorageError) as caught:
    fail(error, needed_bytes=3 << 20, resume=lambda: 'Step 2 is whole.')
  assert str(caught.value) == (
      'The checkpoint of step 3 could not be written to /proc: the disk is full'
      ' (0 Bytes free, up to 3.0 MiB needed). Make room there, or use another '
      '--workdir. Step 2 is whole.')
  assert caught.value.__cause__ is error


def test_a_reason_is_found_below_other_errors():
  try:
    try:
      raise PermissionError(errno.EACCES, 'no')
    except OSError as error:
      raise RuntimeError('in the background') from error
  except RuntimeError as error:
    outer = error
  with pytest.raises(storage.StorageError, match='this user may not write'):
    fail(outer)


@pytest.mark.parametrize('error', [
    ValueError('loss'), FileNotFoundError(errno.ENOENT, 'gone')])
def test_other_errors_pass(error):
  with pytest.raises(type(error)) as caught:
    fail(error)
  assert caught.value is error
