"""A failure to write says what, where, why, and what to do."""

import errno
import os

from etils import epath
import fsspec
import pytest

from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items
from vit_jax.checkpoints import lock
from vit_jax.weights import download


def fail(error, folder='/proc', **options):
  with errors.explained('the checkpoint of step 3', folder, **options):
    raise error


@pytest.mark.parametrize('error', [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    # As TensorStore says it.
    ValueError('RESOURCE_EXHAUSTED: Error writing "a/b": [OS error 28: ENOSPC '
               'No space left on device]'),
])
def test_a_full_disk_says_how_much_is_free_and_needed(error):
  with pytest.raises(errors.StorageError) as caught:
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
  with pytest.raises(errors.StorageError, match='this user may not write'):
    fail(outer)


@pytest.mark.parametrize('error', [
    ValueError('loss'), FileNotFoundError(errno.ENOENT, 'gone')])
def test_other_errors_pass(error):
  with pytest.raises(type(error)) as caught:
    fail(error)
  assert caught.value is error


# As gcsfs, TensorStore (its text is of a bucket that was asked), s3fs and
# Google's libraries put it.
FORBIDDEN = OSError(
    'Forbidden: b/run\nme@x does not have storage.objects.create access')
ANSWERS = [
    (FORBIDDEN, 'has not the right to', 'roles/storage.objectUser'),
    (PermissionError(errno.EACCES, 'Access Denied'), 'has not the right to',
     'Give it a role'),
    (ValueError('PERMISSION_DENIED: Error writing "b/run/x" [HTTP response '
                'code: 403]'), 'has not the right to', 'Give it a role'),
    (OSError('The specified bucket does not exist.'), 'no such bucket',
     'buckets create'),
    (FileNotFoundError(errno.ENOENT, 'The specified bucket does not exist'),
     'no such bucket', 'Check its name'),
    (ValueError('UNAUTHENTICATED: Error reading "b/run/x" [HTTP response code: '
                '401]'), 'nobody is logged in', 'gcloud auth'),
    (RuntimeError('Your default credentials were not found.'),
     'nobody is logged in', 'gcloud auth'),
    (OSError('The rate of requests exceeds the quota of the project, 429'),
     'a quota', 'Wait, or have it raised'),
]


@pytest.mark.parametrize(('error', 'why', 'way_out'), ANSWERS)
def test_what_a_bucket_answers_is_said_with_its_path_and_a_way_out(
    error, why, way_out):
  with pytest.raises(errors.StorageError) as caught:
    fail(error, folder='gs://b/run', resume=lambda: 'Step 2 is whole.')
  said = str(caught.value)
  assert said.startswith(
      'The checkpoint of step 3 could not be written to gs://b/run: ')
  assert why in said and way_out in said
  assert said.endswith(', or use another --workdir. Step 2 is whole.')
  # On a disk the same words are something else.
  with pytest.raises((errors.StorageError, type(error))) as caught:
    fail(error)
  assert why not in str(caught.value)


@pytest.mark.parametrize('error', [
    ValueError('loss'),
    # A process that is gone: `agreement` names it.
    RuntimeError('UNAVAILABLE: failed to connect to all addresses: barrier'),
    # Of a file that is not there; what its path says is no answer.
    ValueError('File gs://my-bucket/run/4/_METADATA does not exist.'),
    ValueError('Checkpoint path my-bucket/quota-study/4 does not exist.'),
    # Of a device.
    RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 2 bytes.')])
def test_of_a_bucket_too_other_errors_pass(error):
  with pytest.raises(type(error)) as caught:
    fail(error, folder='gs://b/run')
  assert caught.value is error


class Refusing:
  """A file system that refuses whatever is asked of it."""

  def __getattr__(self, name):
    def refuse(*_, **__):
      raise FORBIDDEN
    return refuse


def test_a_bucket_that_refuses_is_said_wherever_a_run_meets_it(monkeypatch):
  # Kept by epath for the rest of the process; nothing else there is on s3.
  monkeypatch.setattr(fsspec, 'filesystem', lambda *_, **__: Refusing())
  with pytest.raises(errors.StorageError, match=(
      'The workdir could not be written to s3://b/run: .*not the right')):
    with lock.hold('s3://b/run'):
      pass
  with pytest.raises(errors.StorageError, match=(
      'no reading from s3://b/run: .*not the right .*storage.objects.create')):
    download.fetch('s3://b/run')
  with pytest.raises(errors.StorageError, match=(
      'The checkpoint could not be read from s3://b/run/4: .*not the right')):
    with items.explained(epath.Path('s3://b/run/4')):
      (epath.Path('s3://b/run/4') / 'config').read_text()
