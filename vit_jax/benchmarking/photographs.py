"""Made-up photographs: JPEGs of the size and the cost of ImageNet's.

The spectrum of natural images falls as one over the frequency (Field 1987,
https://doi.org/10.1364/JOSAA.4.002379). Noise of that spectrum, much the same
in each channel, 500 x 375 pixels at JPEG quality 90, makes files of 110 kB, as
ImageNet's are on average: the decoder has as many coefficients to read.
"""

from collections.abc import Callable
import io
import pathlib

import numpy as np
from PIL import Image

HEIGHT, WIDTH, QUALITY = 375, 500, 90


def photograph(rng: np.random.Generator) -> Image.Image:
  """Returns one of them."""
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
  """Writes so many, as a data set of as many classes as ImageNet has.

  The classes share them: how many files there are of the same content makes no
  difference to what reads them.
  """
  photographs = folder / '.photographs'  # Hidden: no class.
  write(photographs, count)
  files = sorted(photographs.rglob('*.jpg'))
  for split, classes in (('train', num_classes), ('test', 1)):
    for number in range(classes):
      path = folder / split / f'{number:04}' / '0.jpg'
      path.parent.mkdir(parents=True)
      path.hardlink_to(files[number % count])


def write(
    folder: pathlib.Path, count: int, *, names: int = 1,
    stored: Callable[[bytes], bytes] = bytes,
) -> None:
  """Writes so many, in two classes: `folder/0/000-00.jpg` and so on.

  Args:
    folder: where to.
    count: of different ones.
    names: of each, links to one file: to draw from a few files at random costs
      Grain more than from many (0.3 ms of 64, 0.01 of 10,000).
    stored: what becomes of a file.
  """
  rng = np.random.default_rng(0)
  for number in range(count):
    path = folder / str(number % 2) / f'{number:03}-00.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    photograph(rng).save(file, 'JPEG', quality=QUALITY)
    path.write_bytes(stored(file.getvalue()))
    for name in range(1, names):
      path.with_name(f'{number:03}-{name:02}.jpg').hardlink_to(path)
