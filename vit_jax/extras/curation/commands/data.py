"""Describes or checks a dataset, or prepares it for training.

    python main.py data describe ./my_images

`describe` prints how files are interpreted: splits, classes and their numbers
of images, sizes, some labels. If they do not open, it prints flags to paste.

    python main.py data check --source=./my_images --html=photos.html

`check` reports unreadable files, duplicates and suspicious labels of a source.

    python main.py data prepare --source=./my_images --to=tfds --name=photos
    python main.py --config=... --config.data.source=photos:1.0.0 \
        --config.data.data_dir=tfds

`prepare` writes any source as ArrayRecord shards in the format of TensorFlow
Datasets: a few large files instead of a million small ones. Repeat a stopped
command to continue it.
"""

import argparse
from typing import Any

from vit_jax.extras.curation.commands import data_check
from vit_jax.extras.curation.commands import data_describe
from vit_jax.extras.curation.commands import data_prepare


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's tasks, with the flags of each."""
  tasks = parser.add_subparsers(dest='task', required=True, metavar='TASK')
  for task in (data_describe, data_check, data_prepare):
    task.add_to(tasks)


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the task; returns the exit status and the results."""
  return args.run_task(args)
