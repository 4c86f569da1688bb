"""Turns weights of one format into another, and proves the result.

    python main.py convert --source=ViT-B_16.npz --target=B16 --format=timm

What was written is read again and compared, value by value.
"""

import argparse
from typing import Any

import jax
import numpy as np

from vit_jax import model as model_lib
from vit_jax import records
from vit_jax import tree
from vit_jax.training import writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--source', required=True, metavar='PATH',
      help='a workdir or checkpoint of ours, an .npz, a .safetensors, a state '
      'dict of PyTorch, or a folder of one; also gs://, https:// and '
      'hf://user/model')
  parser.add_argument(
      '--target', required=True, metavar='PATH',
      help='what to write: a file for npz, a file or a folder for timm, a '
      'folder for huggingface and orbax. It must not exist')
  parser.add_argument(
      '--format', required=True, choices=model_lib.FORMATS,
      help='npz: names of the published JAX weights; timm; huggingface; orbax: '
      'our own')
  parser.add_argument(
      '--which', choices=('latest', 'best'), default='latest',
      help='which checkpoint of a workdir (default: %(default)s)')
  parser.add_argument(
      '--set', action='append', default=[], metavar='KEY=VALUE',
      help='what the source does not say, for example num_heads=4 or '
      'resolution=384; any key of the section model, and of its preprocessing')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  model = model_lib.load(
      args.source, which=args.which, **overrides(args.set))
  for line in model.report:
    print(line)
  notes = model.save(args.target, form=args.format)
  # The settings, which some formats cannot say, are not what is in question.
  again = model_lib.load(
      args.target, log=None, **_settings(model, args.format))
  differing = [
      name for name, same in tree.flatten(jax.tree.map(
          lambda a, b: bool(np.array_equal(a, b)), model.params, again.params
      )).items() if not same]
  if differing:
    raise ValueError(
        f'{args.target} was written, but reads back with other values in '
        f'{", ".join(differing)}. Do not use it.')
  for note in notes:
    print(f'note: {note}')
  print(f'wrote   {args.target} ({args.format}), '
        f'{tree.num_elements(model.params):,} parameters, read back and '
        'compared: the same to the bit')
  if args.json:
    writer.write_json(args.json, {
        'source': args.source, 'target': args.target, 'format': args.format,
        'parameters': tree.num_elements(model.params),
        'model': records.to_plain(model.config),
        'preprocess': records.to_plain(model.preprocess), 'notes': notes})
  return 0


def overrides(texts: list[str]) -> dict[str, Any]:
  """Returns KEY=VALUE texts as keywords, typed later where they are used."""
  result: dict[str, Any] = {}
  for text in texts:
    key, equals, value = text.partition('=')
    if not equals or not key.isidentifier():
      raise ValueError(f'--set takes KEY=VALUE, but got {text!r}.')
    result[key] = records.convert(
        records.FlagText(value), Any, where=f'--set={key}')
  return result


def _settings(model: model_lib.Model, form: str) -> dict[str, Any]:
  """Returns what must be said for a model to be read back from a format."""
  if form == 'orbax':
    return {}
  plain = records.to_plain(model.config)
  names = ['depth', 'num_heads', 'gelu', 'layer_norm_epsilon', 'pooling',
           'position_cls', 'backbone']
  return {**{name: plain[name] for name in names if name in plain},
          'resolution': model.resolution}
