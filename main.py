"""Command-line entry point: `python main.py --help`.

The same as `python -m vit_jax` and, after `pip install .`, as `vit-jax`.
"""

import sys

if __name__ == '__main__':
  try:
    from vit_jax.run import signals
    signals.catch_early()  # Before the other imports.
    from vit_jax.__main__ import exit_code
  except ModuleNotFoundError as error:
    if 'doctor' not in sys.argv:
      sys.exit(f'{error}. Install the packages: pip install -r '
               'requirements.txt. `python main.py doctor` lists them.')
    from vit_jax import registry  # Needs the standard library only.
    sys.exit(registry.load(registry.COMMANDS['doctor']).run(None)[0])
  sys.exit(exit_code())
