"""Synthetic photographs: JPEGs with the size and decoding cost of ImageNet's.

The amplitude spectrum of natural images falls as 1 / frequency (Field 1987,
https://doi.org/10.1364/JOSAA.4.002379). Noise with that spectrum, correlated
between channels, 500 x 375 pixels at JPEG quality 90, gives files of 110 kB,
the average of ImageNet, with as many coefficients to decode.
"""

import pathlib

import numpy as np
from PIL import Image

HEIGHT, WIDTH, QUALITY = 375, 500, 90
ORIGINALS = '.photos'  # Hidden folders are not classes.


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


def write(
    folder: pathlib.Path, count: int, *, num_links: int = 1,
    num_classes: int = 2,
) -> None:
  """Writes photos as class folders of a training and a test split.

  Args:
    folder: destination.
    count: number of different photos.
    num_links: file names per photo, as hard links: reading speed does not
      depend on the content, but Grain shuffles a small dataset slower per
      example than a large one (0.3 ms of 64, 0.01 of 10,000).
    num_classes: number of classes, each with at least one image per split.
  """
  rng = np.random.default_rng(0)
  photos = folder / ORIGINALS
  photos.mkdir(parents=True)
  for number in range(count):
    photo(rng).save(photos / f'{number}.jpg', quality=QUALITY)
  for split, files in (('train', count * num_links), ('test', 1)):
    for number in range(max(files, num_classes)):
      path = folder / split / str(number % num_classes) / f'{number}.jpg'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.hardlink_to(photos / f'{number % count}.jpg')
