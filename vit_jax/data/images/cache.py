"""In-memory cache of decoded images, so that small data sets decode once."""

import threading
from typing import Any

import numpy as np


class Cache:
  """Decoded examples, before augmentation; never evicts.

  A copy in another process starts empty.
  """

  def __init__(self):
    self._examples: dict[int, dict[str, Any]] = {}
    self._bytes = 0
    self._lock = threading.Lock()

  def __reduce__(self):
    return Cache, ()

  def get(self, index: int) -> dict[str, Any] | None:
    """Returns {'image': pixels, 'label': ...}, or None."""
    return self._examples.get(index)

  def put(
      self, index: int, label: Any, pixels: np.ndarray, *, max_bytes: int,
  ) -> None:
    """Adds an example if all pixels then fit into `max_bytes`."""
    with self._lock:
      if index in self._examples or self._bytes + pixels.nbytes > max_bytes:
        return
      self._bytes += pixels.nbytes
      self._examples[index] = {'image': pixels, 'label': label}
