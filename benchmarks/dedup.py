"""Recall and cost of `main.py deduplicate`.

    python benchmarks/dedup.py speed                 # random fingerprints
    python benchmarks/dedup.py speed --runner=DirectRunner
    python benchmarks/dedup.py plant --data-dir=DIR --to=runs/planted
    python main.py deduplicate --source=runs/planted --split=train+test \
        --against=cifar10 --data-dir=DIR --to=runs/found
    python benchmarks/dedup.py score --to=runs/planted --found=runs/found

`plant` writes CIFAR-10's training images and changed copies of its test images
into a folder; `score` prints how many of each kind of change were found.
"""

import argparse
import collections
import io
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
from PIL import Image
from PIL import ImageEnhance

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import data
from vit_jax.data.images import decode
from vit_jax.extras.curation import beam_runner
from vit_jax.extras.curation import hash_index

SIZES = (10_000, 100_000, 1_000_000)
VIEWS = 60  # Fingerprints of a test image.
_BLOCK = 10_000

# ----------------------------------------------------------------------- speed


def fingerprints(
    count: int, seed: int, *, crowd_share: float = 0.02) -> np.ndarray:
  """Returns random fingerprints, a share of them near one of ten centres.

  Real images have such crowds too, for example white pages.
  """
  rng = np.random.default_rng(seed)
  bits = rng.integers(0, 2**64, count, dtype=np.uint64)
  centres = np.random.default_rng(0).integers(0, 2**64, 10, dtype=np.uint64)
  crowd = rng.random(count) < crowd_share
  noise = rng.integers(0, 64, (3, crowd.sum())).astype(np.uint64)
  near = centres[rng.integers(0, 10, crowd.sum())]
  for bit in noise:
    near = near ^ (np.uint64(1) << bit)
  bits[crowd] = near
  return bits


def count_pairs(seed: int, index: hash_index.Index, crowd_share: float) -> int:
  """Returns the number of pairs of a block of the source."""
  return len(index.match(fingerprints(
      _BLOCK, seed, crowd_share=crowd_share)).query)


def match(
    num_source: int, num_tests: int, runner: str, crowd_share: float) -> int:
  """Returns the number of pairs."""
  index = hash_index.Index(fingerprints(num_tests, 1, crowd_share=crowd_share))
  seeds = range(2, 2 + num_source // _BLOCK)
  if runner == beam_runner.LOCAL:
    return sum(count_pairs(seed, index, crowd_share) for seed in seeds)
  out = pathlib.Path(tempfile.mkdtemp()) / 'pairs'
  with beam_runner.run(runner=runner, flags=[]) as (beam, pipeline):
    tests = pipeline | beam.Create([index])
    _ = (pipeline | 'source' >> beam.Create(list(seeds)) | beam.Reshuffle()
         | beam.Map(count_pairs, beam.pvalue.AsSingleton(tests), crowd_share)
         | beam.CombineGlobally(sum)
         | beam.io.WriteToText(os.fspath(out)))
  return sum(int(path.read_text()) for path in out.parent.glob(
      f'{out.name}-*'))


def speed(args: argparse.Namespace) -> None:
  """Prints CPU seconds by size, and their growth exponent."""
  for title, num_tests, crowd_share in (
      (f'10,000 test images, {VIEWS} fingerprints each',
       lambda n: 10_000 * VIEWS, 0.02),
      ('a tenth as many test fingerprints as examples',
       lambda n: n // 10, 0.02),
      ('the same without a crowd', lambda n: n // 10, 0)):
    print(f'{title}; runner {args.runner}')
    secs = []
    for size in SIZES:
      start = time.process_time()  # Not affected by other processes.
      pairs = match(size, num_tests(size), args.runner, crowd_share)
      secs.append(time.process_time() - start)
      print(f'  {size:>9,} examples: {secs[-1]:8.2f} s, {pairs:,} pairs',
            flush=True)
    slope = np.polyfit(np.log(SIZES), np.log(secs), 1)[0]
    last = np.log10(secs[-1] / secs[-2])
    print(f'  exponent {slope:.2f}; from 100,000 to 1,000,000: {last:.2f}')
  queries, tests = fingerprints(10_000, 2), fingerprints(1_000, 1)
  start = time.process_time()
  near = sum(int((np.bitwise_count(tests ^ q) <= 7).sum()) for q in queries)
  print(f'all pairs of 10,000 and 1,000: {time.process_time() - start:.2f} s, '
        f'{near:,} pairs')


# ----------------------------------------------------------------------- plant


def _jpeg(quality):
  def change(image, rng):
    del rng
    buffer = io.BytesIO()
    image.save(buffer, 'JPEG', quality=quality)
    return Image.open(buffer).convert('RGB')
  return change


def _resize(side):
  return lambda image, rng: image.resize((side, side), Image.BICUBIC)


def _crop(low, high):
  def change(image, rng):
    # From an enlarged image, for offsets of fractions of a pixel.
    whole = image.resize((256, 256), Image.BICUBIC)
    side = round(256 * rng.uniform(low, high))
    left, top = rng.integers(0, 257 - side, 2)
    return whole.crop((left, top, left + side, top + side)).resize(
        (32, 32), Image.BOX)
  return change


def _flip(image, rng):
  del rng
  return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def _bright(factor):
  return lambda image, rng: ImageEnhance.Brightness(image).enhance(factor)


def _contrast(factor):
  return lambda image, rng: ImageEnhance.Contrast(image).enhance(factor)


def _all(image, rng):
  return _jpeg(60)(_bright(1.15)(_crop(0.9, 1)(_flip(image, rng), rng), rng),
                   rng)


CHANGES = {
    'same': lambda image, rng: image, 'jpeg-75': _jpeg(75),
    'jpeg-30': _jpeg(30), 'resize-16': _resize(16), 'resize-24': _resize(24),
    'resize-64': _resize(64), 'bright-0.7': _bright(0.7),
    'bright-1.3': _bright(1.3), 'contrast-0.7': _contrast(0.7),
    'contrast-1.4': _contrast(1.4),
    'grey': lambda image, rng: image.convert('L'), 'flip': _flip,
    'crop-0.95-1': _crop(0.95, 1), 'crop-0.9-0.95': _crop(0.9, 0.95),
    'crop-0.85-0.9': _crop(0.85, 0.9), 'crop-0.8-0.85': _crop(0.8, 0.85),
    'crop-0.75-0.8': _crop(0.75, 0.8),
    'flip, crop 0.9-1, bright, jpeg': _all,
}


def plant(args: argparse.Namespace) -> None:
  """Writes training images and changed copies of test images into a folder."""
  def images(split):
    dataset = data.open_dataset(data.parse({
        'source': 'cifar10', 'data_dir': args.data_dir, 'split': split}))
    for index in range(len(dataset)):
      yield index, dataset[index]['image']

  root = pathlib.Path(args.to) / 'train'
  for name in ('cifar10', *CHANGES):
    (root / name).mkdir(parents=True)
  for index, image in images('train'):
    (root / 'cifar10' / f'{index}.png').write_bytes(image)
  for index, image in images(f'test[:{args.count}]'):
    pixels = decode.decode(image, channels=3)
    for name, change in CHANGES.items():
      change(pixels, np.random.default_rng(index)).save(
          root / name / f'{index}.png')


def score(args: argparse.Namespace) -> None:
  """Prints recall by kind of change, and whether the pair is correct."""
  pairs = [json.loads(line) for line in
           (pathlib.Path(args.found) / 'pairs.jsonl').open()]
  found = collections.Counter()
  right = collections.Counter()
  for pair in pairs:
    kind, name = pair['key'].split('/')[-2:]
    found[kind] += 1
    right[kind] += int(name.split('.')[0]) == pair['against_index']
  for name in CHANGES:
    total = len(list((pathlib.Path(args.to) / 'train' / name).iterdir()))
    print(f'{name:32} found {found[name]:6,} of {total:6,} = '
          f'{100 * found[name] / total:6.2f} %; correct test image '
          f'{100 * right[name] / max(1, found[name]):6.2f} %')
  print(f'CIFAR-10 training images: {found["cifar10"]:,}')


def main() -> None:
  """Runs a subcommand."""
  parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
  parts = parser.add_subparsers(required=True)
  part = parts.add_parser('speed')
  part.add_argument('--runner', default=beam_runner.LOCAL)
  part.set_defaults(run=speed)
  part = parts.add_parser('plant')
  part.add_argument('--data-dir', required=True)
  part.add_argument('--to', required=True)
  part.add_argument('--count', type=int, default=1_000)
  part.set_defaults(run=plant)
  part = parts.add_parser('score')
  part.add_argument('--to', required=True)
  part.add_argument('--found', required=True)
  part.set_defaults(run=score)
  args = parser.parse_args()
  args.run(args)


if __name__ == '__main__':
  main()
