"""Keys and splits of examples by the file that holds them."""

from collections.abc import Sequence
import dataclasses
import os

from jaxtyping import Integer
import numpy as np

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files as files_lib
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(frozen=True, eq=False)
class FileKeys:
  """Keys of rows by their file, whose rows end at `ends`, and their own key.

  The file is always part of the key, so that an added file renames no example.
  Without own keys, they are numbered in each file.
  """
  files: Sequence[str]
  ends: Integer[np.ndarray, 'files']
  keys: columns_lib.Column | None = None

  def __len__(self) -> int:
    return int(self.ends[-1])

  def __getitem__(self, row: int) -> str:
    file = int(np.searchsorted(self.ends, row, side='right'))
    if self.keys is not None:
      return f'{self.files[file]}/{self.keys[row]}'
    return f'{self.files[file]} {row - (self.ends[file - 1] if file else 0)}'


def splits_of_files(
    paths: Sequence[os.PathLike], counts: Sequence[int], *, where: str,
) -> columns_lib.Column | None:
  """Returns the split of each row of files; None if they do not differ."""
  return files_lib.check_splits(
      [*map(split_strings.find_in_file, paths)], paths, counts, where)
