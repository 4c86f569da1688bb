"""Training's crop of a JPEG, without the pixels that it leaves out.

An Inception crop takes half of an image. A JPEG is a stream: what is above the
crop and beside it has still to be read, but need not become pixels, and what is
below not even that. Pillow decodes all, unless the file has restart markers and
the crop is cut out before (`restarts`). nvImageCodec decodes a part of any, by
the same libjpeg-turbo, bit for bit the same, and needs no GPU for it; and
cykooz-resizer resizes Pillow's images by Pillow's own arithmetic in vector
instructions, with weights of fewer bits: a level of 255 apart in one value of
four, and two in one of very many. Both are optional, `requirements-fast.txt`.

**Who can be read is decided elsewhere.** A file that is no plain JPEG (one
scan, colour or grey, upright, whole from its first marker to its last) or that
does not decode is left to `decoding.decode`, with the generator as it was: an
error, an orientation or a rule for CMYK is the same with and without.
"""

from collections.abc import Callable, Generator
import contextlib
import functools
import importlib
import importlib.util
import io
import math
import os
import re
import sys
import threading
from typing import Any

import numpy as np
from PIL import Image
from PIL import ImageFile

from vit_jax.data.images import limits
from vit_jax.data.images import restarts

Window = Callable[[int, int], tuple[int, int, int, int]]
Method = Image.Resampling
Part = tuple[Image.Image, tuple[int, int]]  # Pixels, their left and upper edge.

PACKAGES = ('nvidia.nvimgcodec', 'cykooz_resizer')
# What a run says, by whether they are there.
NOTES = {
    True: 'JPEGs: no more than the crop is decoded, by nvImageCodec '
          '(data.decoder=pillow for all of it)',
    False: 'JPEGs: decoded whole, by Pillow, unless they have restart markers; '
           'to decode no more than the crop of any, '
           'pip install -r requirements-fast.txt'}
# How far filters reach, in pixels of the smaller image; without those that have
# a step, where a pixel is in or out by the last digit of a position.
_REACH = {Method.BILINEAR: 1, Method.BICUBIC: 2, Method.LANCZOS: 3}
# What cykooz-resizer calls those that it computes to a level of Pillow's.
_VECTORISED = {Method.BILINEAR: 'bilinear', Method.BICUBIC: 'catmull_rom'}
# Within a scan, a byte 0xff is stuffed with a zero, or begins a restart.
_MARKER = re.compile(rb'\xff[^\x00\xff\xd0-\xd7]')
_ORIENTATION, _TURNED = 0x0112, range(2, 9)


def is_installed() -> bool:
  """Returns whether both libraries are there; imports neither."""
  return _are_installed(PACKAGES)


@functools.cache
def _are_installed(packages: tuple[str, ...]) -> bool:
  with contextlib.suppress(ModuleNotFoundError):  # Of `nvidia` itself.
    return all(importlib.util.find_spec(name) for name in packages)
  return False


def crop(
    data: bytes | np.ndarray, size: tuple[int, int], method: Method,
    draw: Window, *, max_pixels: int = limits.MAX_PIXELS,
) -> Image.Image | None:
  """Returns a part of an RGB image, resized; None where it is to be read whole.

  Args:
    data: of a file.
    size: (width, height) of the result.
    method: of resizing.
    draw: the part of an image of (width, height): (left, top, width, height).
      Not called where the header says None.
    max_pixels: the most that the file may have.

  Raises:
    ValueError: as `headers.open_image`.
  """
  if isinstance(data, np.ndarray) or method not in _REACH:
    return None
  if not data.startswith(b'\xff\xd8'):
    return None
  found = _decoder(data, max_pixels)
  if found is None:
    return None
  whole, decode = found
  left, top, width, height = draw(*whole)
  reach = _REACH[method]
  # Pillow's resize of a box looks beyond its edges, where its filter reaches.
  wide = 1 + math.ceil(reach * max(1.0, width / size[0]))
  high = 1 + math.ceil(reach * max(1.0, height / size[1]))
  region = (max(0, left - wide), max(0, top - high),
            min(whole[0], left + width + wide),
            min(whole[1], top + height + high))
  part = decode(region)
  if part is None:
    return None
  pixels, (x, y) = part
  return _tools.resize(
      pixels, size, method, (left - x, top - y, width, height))


def _decoder(
    data: bytes, max_pixels: int,
) -> tuple[tuple[int, int], Callable[[restarts.Region], Part | None]] | None:
  """Returns (width, height) of a plain JPEG, and what decodes a part of it.

  None where nothing here does.

  Raises:
    ValueError: as `headers.open_image`.
  """
  restarting = restarts.find(data)
  if restarting is None and not is_installed():
    return None
  if restarting is not None and restarting.is_bare:  # As those that we write.
    size = restarting.width, restarting.height
    limits.check_pixels(size, max_pixels)
  else:
    header = limits.open_image(data, max_pixels=max_pixels)
    if not _is_plain(header, data):
      return None
    size = header.size
  return size, (
      functools.partial(_tools.decode, data) if restarting is None
      else functools.partial(_cut, data, restarting))


def _cut(
    data: bytes, header: restarts.Header, region: restarts.Region,
) -> Part | None:
  """Returns a region and what is around it.

  None where the file does not restart as its header says, or is defective.
  """
  smaller = restarts.cut(data, header, region)
  if smaller is None:
    return None
  file, corner = smaller
  try:
    image = Image.open(io.BytesIO(file), formats=['JPEG'])
    image.load()
  except Exception:  # As of any other file: `decoding` says what it is.
    return None
  return image if image.mode == 'RGB' else image.convert('RGB'), corner


def _is_plain(header: Image.Image, data: bytes) -> bool:
  """Returns whether nothing but a colour or grey scan follows the header."""
  if header.format != 'JPEG' or header.mode not in ('L', 'RGB'):
    return False
  assert isinstance(header, ImageFile.ImageFile) and header.fp is not None
  if 'progression' in header.info or header.info.get('adobe_transform', 1) != 1:
    return False
  try:
    if header.getexif().get(_ORIENTATION) in _TURNED:
      return False
  except Exception:  # A defective EXIF block: `decoding` knows what to do.
    return False
  marker = _MARKER.search(data, header.fp.tell())
  return marker is not None and (
      marker.group() == b'\xff\xd9' and marker.end() == len(data))


class _Tools(threading.local):
  """Decoder and resizer of a thread: each keeps memory for the next image."""

  def __init__(self):
    self._codec: Any = None
    self._buffer: Any = None

  def _load(self) -> None:
    # It looks for NVIDIA's libraries, and writes that they are not there.
    os.environ.setdefault('PYNVIMGCODEC_VERBOSITY', '0')
    # Once: what others write to standard error meanwhile is lost.
    if PACKAGES[0] not in sys.modules:
      with _quiet():
        importlib.import_module(PACKAGES[0])
    import cykooz_resizer
    from nvidia import nvimgcodec
    self._codec = nvimgcodec
    self._params = nvimgcodec.DecodeParams(
        apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB,
        sample_format=nvimgcodec.SampleFormat.I_RGB)
    self._decoder = nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY, max_num_cpu_threads=1,
        backends=[nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)],
        options=':fancy_upsampling=1 :fast_idct=0')
    self._resizing = cykooz_resizer
    self._resizer = cykooz_resizer.Resizer()
    self._algorithms = {
        method: cykooz_resizer.ResizeAlg.convolution(
            cykooz_resizer.FilterType[name])
        for method, name in _VECTORISED.items()}

  def decode(self, data: bytes, region: restarts.Region) -> Part | None:
    """Returns a region of a JPEG; None if it is defective."""
    if self._codec is None:
      self._load()
    left, top, right, bottom = region
    part = self._codec.CodeStream(data).get_sub_code_stream(
        region=self._codec.Region(start=(top, left), end=(bottom, right)))
    image = self._decoder.decode(
        part, params=self._params, image=self._buffer)
    if image is None:
      return None
    self._buffer = image
    pixels = np.asarray(image)
    if pixels.shape != (bottom - top, right - left, 3):
      return None
    picture = Image.new('RGB', (right - left, bottom - top), None)
    picture.frombytes(pixels)
    return picture, (left, top)

  def resize(
      self, image: Image.Image, size: tuple[int, int], method: Method,
      box: tuple[int, int, int, int],
  ) -> Image.Image:
    """Returns (left, top, width, height) of an image at another size."""
    left, top, width, height = box
    if method not in _VECTORISED or not is_installed():
      return image.resize(
          size, method, box=(left, top, left + width, top + height))
    if self._codec is None:
      self._load()
    lib = self._resizing
    resized = Image.new('RGB', size, None)
    self._resizer.resize_pil(image, resized, lib.ResizeOptions(
        resize_alg=self._algorithms[method],
        crop_box=lib.CropBox(*box), use_alpha=False))
    return resized


_tools = _Tools()
_one_at_once = threading.Lock()


@contextlib.contextmanager
def _quiet() -> Generator[None, None, None]:
  """Discards what libraries write to standard error.

  In one thread at once: another would keep the nowhere of the first as what to
  come back to, and the process would be silent for ever.
  """
  with _one_at_once:
    kept = os.dup(2)
    with open(os.devnull, 'wb') as nowhere:
      os.dup2(nowhere.fileno(), 2)
    try:
      yield
    finally:
      os.dup2(kept, 2)
      os.close(kept)
