"""Flags of several commands, with the arguments of `add_argument`."""

import argparse
from collections.abc import Mapping
from typing import Any

_FLAGS: Mapping[str, Mapping[str, Any]] = {
    '--max-distance': dict(
        type=int, default=7, metavar='BITS',
        help='maximum Hamming distance of the 64-bit hashes of '
        'near-duplicates, up to 11 (default: %(default)s)'),
    '--min-similarity': dict(
        type=float, default=0.9, metavar='R',
        help='minimum pixel correlation of near-duplicates, up to 1 '
        '(default: %(default)s)'),
    '--runner': dict(
        default='local', metavar='NAME',
        help="'local', in this process (the default), or the name of an Apache "
        'Beam runner (requirements-beam.txt), whose flags follow --. To use '
        'all cores: --runner=DirectRunner -- --direct_num_workers=0 '
        '--direct_running_mode=multi_processing'),
}


def add(parser: argparse.ArgumentParser, *names: str) -> None:
  """Adds flags of `_FLAGS`."""
  for name in names:
    parser.add_argument(name, **_FLAGS[name])
