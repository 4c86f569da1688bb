"""Turns weights of one format into another, and proves the result.

    python main.py convert --source=ViT-B_16.npz --target=B16 --format=timm

What was written is read again as a stranger would read it, and compared, value
by value. Where the format cannot say something, a note says what to give.
"""

import argparse
from collections.abc import Mapping
import functools
from typing import Any

from etils import epath
import numpy as np

from vit_jax import atomic_files
from vit_jax import schema
from vit_jax import tree
from vit_jax.commands import arguments
from vit_jax.inference import load
from vit_jax.inference import model as model_lib
from vit_jax.run import model_card
from vit_jax.weights import save
from vit_jax.weights import unsaid


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser, flag='--source')
  parser.add_argument(
      '--target', required=True, metavar='PATH',
      help='what to write: a file for npz, a file or a folder for timm, a '
      'folder for huggingface and orbax. It must not exist')
  parser.add_argument(
      '--format', required=True, choices=save.FORMATS,
      help='npz: names of the published JAX weights; timm; huggingface; orbax: '
      'our own')
  parser.add_argument(
      '--report', action='store_true',
      help='print a line for each parameter: what it was called, what it is '
      'called here, its shape; --json always holds them')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  model = load.load(
      args.source, which=args.which, **arguments.parse_overrides(args.set))
  if args.report:
    for line in model.report:
      print(line)
  notes = model.save(args.target, form=args.format)
  for note in notes:
    print(f'note: {note}')
  said = _prove(model, args.target)
  _take_card(args)
  print(f'wrote   {args.target} ({args.format}), '
        f'{tree.num_elements(model.params):,} parameters, read back '
        + (f'with {" ".join(said)} ' if said else '')
        + 'and compared: the same to the bit')
  if args.json:
    atomic_files.write_json(args.json, {
        'source': args.source, 'target': args.target, 'format': args.format,
        'parameters': tree.num_elements(model.params),
        'model': schema.to_plain(model.config),
        'preprocess': schema.to_plain(model.preprocess), 'notes': notes,
        'needed': said, 'report': list(model.report)})
  return 0


def _take_card(args: argparse.Namespace) -> None:
  """Gives a folder the card of the run that its model is from.

  It is called as the hub wants it, where the format is one of the hub's.
  """
  card = epath.Path(args.source) / model_card.FILENAME
  target = epath.Path(args.target)
  if not card.exists() or not target.is_dir():
    return
  name = model_card.FILENAME if args.format == save.ORBAX else 'README.md'
  atomic_files.write_text(
      target / name, model_card.moved(card.read_text(), args.target))


def _prove(model: model_lib.Model, target: str) -> list[str]:
  """Reads a file back, first as one who knows nothing of it.

  Returns:
    The flags that `load` needs for what the format does not say.

  Raises:
    ValueError: if it then reads back as another model all the same.
  """
  needed = unsaid.settings(
      functools.partial(_load, target), config=model.config,
      resolution=model.resolution, preprocess=model.preprocess,
      positions=model.positions)
  again = _load(target, {name: value for name, (value, _) in needed.items()})
  have, want = tree.flatten(again.params), tree.flatten(model.params)
  differing = sorted(have.keys() ^ want.keys()) or [
      name for name in want if not np.array_equal(want[name], have[name])]
  differing += [
      name for name, value in unsaid.comparable(model.config).items()
      if unsaid.comparable(again.config)[name] != value]
  if differing:
    raise ValueError(
        f'{target} was written, but reads back with another '
        f'{", ".join(differing)}. Do not use it.')
  return [unsaid.as_text(name, value) for name, (value, _) in needed.items()]


def _load(target: str, given: Mapping[str, Any]) -> model_lib.Model:
  return load.load(target, log=None, **given)
