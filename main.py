"""Command-line entry point: `python main.py --help`.

The same as `python -m vit_jax` and, after `pip install .`, as `vit-jax`.
"""

import sys

from vit_jax.run import signals

if __name__ == '__main__':
  signals.catch_early()  # Before the other imports.
  from vit_jax.__main__ import exit_code
  sys.exit(exit_code())
