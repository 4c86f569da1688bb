"""Command-line entry point: `python main.py --help`.

The same as `python -m vit_jax` and, after `pip install .`, as `vit-jax`.
"""

import sys

from vit_jax.__main__ import exit_code

if __name__ == '__main__':
  sys.exit(exit_code())
