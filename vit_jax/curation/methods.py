"""Two ways to compare images: perceptual hash and pixels, or model features.

Methods are plain records that workers receive. Both have:

  min_similarity   lowest similarity of near-duplicates
  read      the part of an image to keep; called in threads
  views     bits or features [images, views, ...] of test images
  index     search index of the views of all test images
  search    compares source images with the most similar test images
"""

import collections
from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

from jaxtyping import Float32, UInt8, UInt64
import numpy as np
from PIL import Image

from vit_jax import nearest_neighbours
from vit_jax.curation import hash_index
from vit_jax.curation import selection as selection_lib
from vit_jax.curation import similarity

# Maps images to one row of features each; it is sent to other processes.
Embed = Callable[[list[Any]], Any]
# Selection of each test image, and its index there.
Places = Sequence[tuple[selection_lib.Selection, int]]

_MAX_CANDIDATES = 8  # Test images compared with each example.


class Comparison(NamedTuple):
  """A source image of a batch, compared with a view of a test image.

  `similarity`, `distance` and `change`: see `search.Pair`.
  """
  row: int
  image: int
  similarity: float
  distance: int | None
  change: str


@dataclasses.dataclass(frozen=True)
class PixelMethod(similarity.Thresholds):
  """Compares pixels.

  The views of a test image are windows of it, then mirrored windows.

  Attributes:
    crops: also search for crops of test images.
  """
  crops: bool = True

  @property
  def windows(self) -> tuple[similarity.Window, ...]:
    """Searched windows of a test image; the first is the whole image."""
    return similarity.crops() if self.crops else (similarity.WHOLE,)

  def read(self, image: Image.Image) -> UInt8[np.ndarray, '64 64 3']:
    return similarity.thumbnail(image)

  def views(
      self, images: Sequence[np.ndarray],
  ) -> UInt64[np.ndarray, 'images views']:
    thumbnails = np.stack(images)
    bits = similarity.fingerprints(thumbnails, self.windows)
    mirrored = similarity.mirrored(bits)
    flat = similarity.is_flat(thumbnails)
    mirrored[flat] = bits[flat]
    return np.concatenate([bits, mirrored], axis=1)

  def index(self, views: UInt64[np.ndarray, 'images views']) -> Any:
    # Apart, because the hash of a crop may be nearer than that of the whole
    # image, but its pixels less similar: crops must not displace copies.
    count = len(self.windows)
    crops = [view for view in range(2 * count) if view % count]
    return [(chosen, hash_index.Index(
        views[:, chosen].ravel(), max_distance=self.max_distance))
            for chosen in ([0, count], crops) if chosen]

  def search(
      self, images: Sequence[np.ndarray], index: Any, places: Places,
  ) -> Iterator[Comparison]:
    bits = similarity.fingerprints(np.stack(images))[:, 0]
    for views, of_views in index:
      matches = of_views.match(bits)
      compared = collections.defaultdict[int, set[int]](set)
      for row, entry, distance in zip(
          matches.query.tolist(), of_views.first[matches.entry].tolist(),
          matches.distance.tolist()):
        image, place = divmod(entry, len(views))
        # The nearest view of each of the nearest images.
        if image in compared[row] or len(compared[row]) == _MAX_CANDIDATES:
          continue
        compared[row].add(image)
        mirrored, window = divmod(views[place], len(self.windows))
        change = ' '.join(['mirrored'] * mirrored + ['crop'] * (window > 0))
        yield Comparison(row, image, similarity.correlation(
            similarity.view(images[row]),
            similarity.view(_thumbnail(*places[image]), self.windows[window],
                            mirrored=bool(mirrored))),
                         distance, change or 'whole')


@functools.lru_cache(maxsize=10_000)
def _thumbnail(
    selection: selection_lib.Selection, index: int,
) -> UInt8[np.ndarray, '64 64 3']:
  return similarity.thumbnail(selection.image(index))


@dataclasses.dataclass(frozen=True)
class FeatureMethod:
  """Compares features, minus their mean over the test sets, by their cosine.

  The views of a test image are the image and its mirror image.

  Attributes:
    embed: the model.
    min_similarity: lowest cosine of the features of a near-duplicate.
  """
  embed: Embed
  min_similarity: float = 0.95

  def __post_init__(self):
    if not 0 < self.min_similarity <= 1:
      raise ValueError(
          f'--min-cosine must be in (0, 1]; got {self.min_similarity}.')

  def read(self, image: Image.Image) -> Image.Image:
    return image

  def views(
      self, images: Sequence[Image.Image],
  ) -> Float32[np.ndarray, 'images 2 width']:
    mirrored = [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
                for image in images]
    return np.stack(np.split(self._features([*images, *mirrored]), 2), axis=1)

  def index(self, views: Float32[np.ndarray, 'images 2 width']) -> Any:
    rows = views.reshape(-1, views.shape[-1])
    mean = rows.mean(axis=0)
    return mean, rows - mean

  def search(
      self, images: Sequence[Image.Image], index: Any, places: Places,
  ) -> Iterator[Comparison]:
    del places
    mean, bank = index
    cosines, entries = nearest_neighbours.nearest(
        self._features(images) - mean, bank, k=1)
    for row, (cosine, entry) in enumerate(
        zip(cosines[:, 0].tolist(), entries[:, 0].tolist())):
      image, mirrored = divmod(entry, 2)
      yield Comparison(
          row, image, cosine, None, 'alike' + ' mirrored' * mirrored)

  def _features(
      self, images: Sequence[Image.Image]) -> Float32[np.ndarray, 'rows width']:
    return np.asarray(self.embed(list(images)), np.float32)


Method = PixelMethod | FeatureMethod
