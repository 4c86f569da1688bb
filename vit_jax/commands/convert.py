"""Converts weights to another format and verifies the result.

    python main.py convert --source=ViT-B_16.npz --target=B16 --format=timm

The result is loaded again without overrides and compared value by value. With
--push=USER/NAME, it is uploaded to the Hugging Face hub with its model card.
"""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax import registry
from vit_jax import schema
from vit_jax.commands import arguments

with epy.lazy_imports():
  import jax
  import numpy as np

  from vit_jax import console
  from vit_jax import escape
  from vit_jax import tree
  from vit_jax.data import preprocessing
  from vit_jax.inference import load as load_lib
  from vit_jax.weights import save as save_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser, flag='--source')
  arguments.add(parser, '--labels')
  parser.add_argument(
      '--target', required=True, metavar='PATH',
      help='new path to write: a file for npz (a .json is written next to '
      'it), a folder for timm and orbax')
  parser.add_argument(
      '--format', required=True, metavar='FORMAT',
      help='npz: format of the published JAX weights; timm: config.json and '
      'safetensors, which timm and Transformers open; orbax: checkpoint of '
      'vit_jax')
  parser.add_argument(
      '--dtype', default='float32', metavar='TYPE',
      help='float32 (default), float16 or bfloat16: type of the arrays in the '
      'file; the last two halve its size and round the parameters')
  if publish := registry.optional(registry.PUBLISH):
    publish.add_arguments(parser)


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  schema.check_name(args.format, save_lib.FORMATS, what='--format')
  schema.check_name(args.dtype, save_lib.DTYPES, what='--dtype')
  model = arguments.load_model(args, args.source)
  cards = registry.optional(registry.PUBLISH)
  publish = cards.prepare(args, model) if cards else str
  if args.dtype != 'float32':
    model = model.with_params(jax.tree.map(
        lambda array: array.astype(args.dtype).astype(np.float32),
        model.params))
  notes = model.save(args.target, form=args.format, dtype=args.dtype)
  for note in notes:
    print(escape.line(f'note: {note}'))
  load_lib.check_same(args.target, model)
  console.print_lines(
      f'wrote   {args.target} ({args.format}), '
      f'{tree.num_elements(model.params):,} parameters, loaded again and '
      'compared: bitwise identical')
  if commit := publish():
    print(f'pushed  hf://{args.push}\n        {commit}')
  return 0, {
      'source': args.source, 'target': args.target, 'format': args.format,
      'parameters': tree.num_elements(model.params),
      'model': schema.to_plain(model.config),
      'preprocess': preprocessing.to_plain(model.preprocess), 'notes': notes,
      'commit': commit}
