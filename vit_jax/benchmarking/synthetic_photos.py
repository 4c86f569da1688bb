"""Synthetic photographs: JPEGs with the size and decoding cost of ImageNet's.

The amplitude spectrum of natural images falls as 1 / frequency (Field 1987,
https://doi.org/10.1364/JOSAA.4.002379). Noise with that spectrum, correlated
between channels, 500 x 375 pixels at JPEG quality 90, gives files of 110 kB,
the average of ImageNet, with as many coefficients to decode.
"""

from collections.abc import Callable
import io
import pathlib

import numpy as np
from PIL import Image

HEIGHT, WIDTH, QUALITY = 375, 500, 90


def photo(rng: np.random.Generator) -> Image.Image:
  """Returns one image."""
  frequency = np.hypot(
      np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None])
  frequency[0, 0] = 1.0

  def field(power: float) -> np.ndarray:
    noise = np.fft.rfft2(rng.standard_normal((HEIGHT, WIDTH)))
    values = np.fft.irfft2(noise / frequency**power, (HEIGHT, WIDTH))
    return (values - values.mean()) / values.std()

  light = 45 * field(1.0)
  pixels = np.stack([118 + light + 14 * field(1.3) for _ in range(3)], -1)
  return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def write_classes(
    folder: pathlib.Path, count: int, *, num_classes: int = 1000) -> None:
  """Writes `count` photos as class folders with `num_classes` classes.

  Classes share files, because reading speed does not depend on the content.
  """
  photos = folder / '.photos'  # Hidden folders are not classes.
  write(photos, count)
  files = sorted(photos.rglob('*.jpg'))
  for split, classes in (('train', num_classes), ('test', 1)):
    for number in range(classes):
      path = folder / split / f'{number:04}' / '0.jpg'
      path.parent.mkdir(parents=True)
      path.hardlink_to(files[number % count])


def write(
    folder: pathlib.Path, count: int, *, num_links: int = 1,
    encode: Callable[[bytes], bytes] = bytes,
) -> None:
  """Writes `count` photos in two classes: `folder/0/000-00.jpg` and so on.

  Args:
    folder: destination.
    count: number of different photos.
    num_links: file names per photo, as hard links: Grain shuffles a small
      data set slower per example than a large one (0.3 ms of 64, 0.01 of
      10,000).
    encode: converts the bytes of each JPEG.
  """
  rng = np.random.default_rng(0)
  for number in range(count):
    path = folder / str(number % 2) / f'{number:03}-00.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    photo(rng).save(file, 'JPEG', quality=QUALITY)
    path.write_bytes(encode(file.getvalue()))
    for link in range(1, num_links):
      path.with_name(f'{number:03}-{link:02}.jpg').hardlink_to(path)
