"""Fuzzes the image decoders with coverage guidance.

    pip install atheris
    python tests/fuzz_decoding.py CORPUS -max_total_time=600

Inputs that raise anything but ValueError, or need more than 10 s or 512 MiB,
are saved: add them to `hostile.bad`. `tests/data/images/test_decode.py` tests
the same properties with Hypothesis.
"""

import pathlib
import sys

import atheris

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

with atheris.instrument_imports(include=['PIL', 'vit_jax.data.images.limits',
                                         'vit_jax.data.images.decode',
                                         'vit_jax.data.images.multichannel']):
  from PIL import Image
  Image.init()
  from vit_jax.data.images import decode
  from vit_jax.data.images import multichannel

from tests import hostile

MAX_PIXELS = 2**20


def one(data):
  """Decodes bytes with every kind of config."""
  for channels in (1, 3):
    try:
      image = decode.decode(data, channels=channels, max_pixels=MAX_PIXELS)
    except ValueError:
      continue
    assert image.mode == {1: 'L', 3: 'RGB'}[channels]
    assert 0 < image.width * image.height <= MAX_PIXELS
  for channels, dtype in ((1, 'float32'), (3, 'uint16')):
    try:
      pixels = multichannel.decode(data, channels=channels, dtype=dtype,
                            max_pixels=MAX_PIXELS).pixels
    except ValueError:
      continue
    assert pixels.dtype == dtype and pixels.shape[2] == channels


def main():
  corpus = pathlib.Path(sys.argv[1])
  corpus.mkdir(parents=True, exist_ok=True)
  seeds = hostile.good() | {k: v for k, (v, _) in hostile.bad().items()}
  for name, data in seeds.items():
    if len(data) < 100_000:
      (corpus / name.replace(' ', '_')).write_bytes(data)
  atheris.Setup([*sys.argv, '-timeout=10', '-rss_limit_mb=3000',
                 '-malloc_limit_mb=512', '-max_len=20000'], one)
  atheris.Fuzz()


if __name__ == '__main__':
  main()
