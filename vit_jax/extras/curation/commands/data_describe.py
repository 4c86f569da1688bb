"""Describes a dataset: `data describe`."""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax.extras.curation.commands import flags

with epy.lazy_imports():
  from vit_jax import console
  from vit_jax.extras.curation import describe as describe_lib
  from vit_jax.extras.curation import selection


def add_to(tasks: argparse._SubParsersAction) -> None:
  """Adds the task with its flags."""
  parser = tasks.add_parser(
      'describe', help='print how a dataset is interpreted',
      description='Prints how a dataset is interpreted: splits, classes with '
      'counts, sizes of images and some labels; or flags that open it.')
  flags.add_data(parser, positional=True)
  parser.set_defaults(run_task=run)


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the task; returns the exit status and the results."""
  text, tables = describe_lib.describe(
      selection.all_examples(flags.data_overrides(args)))
  console.print_lines(text)
  for title, columns, rows in tables:
    console.table(title, columns, rows)
  return 0, {'description': text, 'tables': tables}
