"""Files with the groups of the examples of a prepared dataset."""

from etils import epath
from jaxtyping import UInt64
import numpy as np

from vit_jax import exceptions
from vit_jax import untrusted
from vit_jax.exceptions import UserError


def path_of(folder: epath.Path, split: str) -> epath.Path:
  """Returns the file with the groups of a split's examples: uint64, in order.

  They are also in the records, but reading these would take minutes.
  """
  return folder / f'{split}.groups.npy'


def read(
    folder: epath.Path, split: str, count: int,
) -> UInt64[np.ndarray, 'examples']:
  """Returns the hash of the group of each example of a split.

  Raises:
    UserError: if the file is missing, or not of this split.
  """
  path = path_of(folder, split)
  with exceptions.replaced_by(lambda error: UserError(
      f'{path} is missing or damaged ({error}). The dataset has groups, '
      'which this file assigns to its examples: copy it beside the shards, or '
      'prepare them again.')):
    found = untrusted.parse_npy(path.read_bytes())
    if found.dtype != np.uint64 or found.shape != (count,):
      raise UserError(f'{found.dtype} {found.shape} for {count:,} examples')
  return found
