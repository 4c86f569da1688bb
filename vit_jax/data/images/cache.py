"""Decoded images in memory: of a small data set, each is decoded but once."""

import threading
from typing import Any

import numpy as np


class Cache:
  """Examples with their images decoded, before any augmentation.

  What is in it stays; what has no room is read each time. What another process
  gets is empty: each has its own.
  """

  def __init__(self):
    self._kept: dict[int, dict[str, Any]] = {}
    self._bytes = 0
    self._lock = threading.Lock()

  def __reduce__(self):
    return Cache, ()

  def get(self, index: int) -> dict[str, Any] | None:
    """Returns {'image': pixels, 'label': ...} of an example, if it is held."""
    return self._kept.get(index)

  def put(
      self, index: int, label: Any, pixels: np.ndarray, *, max_bytes: int,
  ) -> None:
    """Holds an example, if there is room.

    Args:
      index: of the example.
      label: as the source gives it.
      pixels: of its image, as `decoding.decode` or `bands.decode` takes them.
      max_bytes: of all pixels that are held.
    """
    with self._lock:
      if index in self._kept or self._bytes + pixels.nbytes > max_bytes:
        return
      self._bytes += pixels.nbytes
      self._kept[index] = {'image': pixels, 'label': label}
