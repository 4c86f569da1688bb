"""Shows versions, devices, memory and remedies for missing packages.

Uses only the standard library, so that it runs where nothing is installed.
"""

import argparse
from typing import Any

from vit_jax.extras.doctor import checks as checks_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds no flags besides the common --json."""


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Prints and returns the checks; the status is 0 if training can start."""
  checks = checks_lib.run()
  can_train = not any(check.status == 'FAIL' for check in checks)
  for check in checks:
    print(f'{check.status:4}  {check.name:19}  {check.found}')
  for remedy in dict.fromkeys(c.remedy for c in checks if c.remedy):
    names = ', '.join(c.name for c in checks if c.remedy == remedy)
    print(f'To fix {names}: {remedy}')
  print('Training can start.' if can_train else
        'Training cannot start: fix the items marked FAIL.')
  return int(not can_train), {
      'can_train': can_train, 'checks': [check._asdict() for check in checks]}
