"""Converts weights to another format and verifies the result.

    python main.py convert --source=ViT-B_16.npz --target=B16 --format=timm

The result is loaded again without overrides and compared value by value.
"""

from __future__ import annotations

import argparse

from etils import epy

from vit_jax import schema
from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath
  import numpy as np

  from vit_jax import atomic_files
  from vit_jax import escape
  from vit_jax import tree
  from vit_jax.inference import load
  from vit_jax.inference import model as model_lib
  from vit_jax.run import model_card
  from vit_jax.weights import save

FORMATS = ('npz', 'timm', 'huggingface', 'orbax')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser, flag='--source')
  parser.add_argument(
      '--target', required=True, metavar='PATH',
      help='new path to write: a file for npz (a .json is written next to '
      'it), a file or folder for timm, a folder for huggingface and orbax')
  parser.add_argument(
      '--format', required=True, choices=FORMATS,
      help='npz: format of the published JAX weights; timm and huggingface: '
      'safetensors of these libraries; orbax: checkpoint of vit_jax')
  parser.add_argument(
      '--report', action='store_true',
      help='print the name in the source, our name and the shape of each '
      'parameter; --json always contains them')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  model = load.load(
      args.source, which=args.which, text_embeddings=args.text_embeddings,
      **arguments.parse_overrides(args.set))
  if args.report:
    for line in model.report:
      print(escape.line(line))
  notes = model.save(args.target, form=args.format)
  for note in notes:
    print(escape.line(f'note: {note}'))
  _verify(model, args.target)
  _copy_card(args)
  print(f'wrote   {args.target} ({args.format}), '
        f'{tree.num_elements(model.params):,} parameters, loaded again and '
        'compared: bitwise identical')
  if args.json:
    atomic_files.write_json(args.json, {
        'source': args.source, 'target': args.target, 'format': args.format,
        'parameters': tree.num_elements(model.params),
        'model': schema.to_plain(model.config),
        'preprocess': schema.to_plain(model.preprocess), 'notes': notes,
        'report': list(model.report)})
  return 0


def _copy_card(args: argparse.Namespace) -> None:
  """Copies the model card of a run, under the name that the hub expects."""
  card = epath.Path(args.source) / model_card.FILENAME
  target = epath.Path(args.target)
  if not card.exists() or not target.is_dir():
    return
  name = model_card.FILENAME if args.format == save.ORBAX else 'README.md'
  atomic_files.write_text(
      target / name, model_card.replace_path(card.read_text(), args.target))


def _verify(model: model_lib.Model, target: str) -> None:
  """Raises ValueError unless `target` loads as the same model."""
  again = load.load(target, log=None)
  have, want = tree.flatten(again.params), tree.flatten(model.params)
  differing = sorted(have.keys() ^ want.keys()) or [
      name for name in want if not np.array_equal(want[name], have[name])]
  differing += [name for name in ('preprocess', 'resolution', 'positions')
                if getattr(again, name) != getattr(model, name)]
  found, expected = (schema.to_plain(m.config) for m in (again, model))
  differing += [name for name, value in expected.items()
                if name != 'variant' and found.get(name) != value]
  if differing:
    raise ValueError(
        f'{target} was written, but loads with other {", ".join(differing)}. '
        'Do not use it.')
