"""Flags shared by several commands, and their values."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
import os
import re
from typing import Any

from etils import epy

from vit_jax import registry
from vit_jax import schema
from vit_jax.exceptions import UserError

with epy.lazy_imports():
  from etils import epath

  from vit_jax import atomic_files
  from vit_jax import untrusted
  from vit_jax.checkpoints import paths as checkpoint_paths
  from vit_jax.data import config as data_config
  from vit_jax.data.sources import columns as columns_lib
  from vit_jax.inference import image_files
  from vit_jax.inference import load as load_lib
  from vit_jax.inference import model as model_lib


# Flags of several commands, with the arguments of `add_argument`.
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    '--which': dict(
        choices=('auto', 'latest', 'best'), default='auto',
        help='which checkpoint of a workdir (default: the best one if the run '
        'has one, else the latest)'),
    '--text-embeddings': dict(
        default='', metavar='FILE.npz',
        help='classify with the text embeddings of CLIP or SigLIP: '
        '`embeddings` [classes, width] and `labels`; see docs/inference.md'),
    '--labels': dict(
        default='', metavar='FILE',
        help='class names, one a line: a name for each output of the weights, '
        'in their order, or names that the weights have, in another order, '
        'which reorders the outputs'),
    '--overwrite': dict(
        action='store_true',
        help='replace output files that exist, once the new ones are complete'),
    '--flip': dict(
        action='store_true',
        help='average the outputs of an image and its mirror: twice the time'),
}


def add_common(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of all commands."""
  group = parser.add_argument_group('flags of all commands')
  # A default of a task would overwrite what its command has parsed.
  group.add_argument(
      '--json', metavar='PATH', default=argparse.SUPPRESS,
      help='also write the results to this file as JSON')
  group.add_argument(
      '--verbose', action='store_true', default=argparse.SUPPRESS,
      help='print whole reports about weights, not four lines of them')
  group.add_argument(
      '--import', dest='imports', action='append', metavar='MODULE',
      default=argparse.SUPPRESS,
      help='module of your own that the saved config of a run may import; '
      'those that the command line or a config file names need no flag')


def add_processes(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that describe several processes."""
  group = parser.add_argument_group(
      'runs of several processes',
      'TPU pods, SLURM, Kubernetes and Open MPI are detected. Elsewhere, set '
      'the first three flags for each process.')
  group.add_argument(
      '--coordinator', metavar='HOST:PORT',
      help='host of process 0, with a free port there')
  for flag, metavar, default, text in (
      ('--num-processes', 'N', None, 'number of processes; with 1, this '
       'process runs on its own, even in a cluster'),
      ('--process-id', 'I', None, 'number of this process, from 0'),
      ('--start-timeout', 'SECS', 300, 'time limit for all processes to '
       'connect (default: %(default)s)')):
    group.add_argument(
        flag, type=int, metavar=metavar, default=default, help=text)


def add(parser: argparse.ArgumentParser, *flags: str) -> None:
  """Adds flags of `_FLAGS`."""
  for flag in flags:
    parser.add_argument(flag, **_FLAGS[flag])


def add_model(
    parser: argparse.ArgumentParser, *, flag: str = '--model',
) -> None:
  """Adds the flags of a trained model; `load_model` reads '--model'."""
  parser.add_argument(
      flag, required=True, metavar='PATH',
      help='workdir, checkpoint, .npz, .safetensors or PyTorch state dict, or '
      'a folder with one of them; also at gs://, https:// and '
      'hf://user/model')
  add(parser, '--which', '--text-embeddings')
  parser.add_argument(
      '--set', action='append', default=[], metavar='KEY=VALUE',
      help='override a setting inferred from the weights, such as num_heads=4 '
      'or resolution=384; any field of the section model or of '
      'preprocessing')


def load_model(
    args: argparse.Namespace, path: epath.PathLike = '') -> model_lib.Model:
  """Loads the model of `add_model`'s flags, or one at another path."""
  overrides = parse_overrides(getattr(args, 'set', ()))
  if getattr(args, 'labels', ''):
    text = untrusted.read_text(args.labels)
    overrides['labels'] = tuple(text.strip().splitlines())
  return load_lib.load(
      path or args.model, which=args.which,
      text_embeddings=args.text_embeddings, **overrides)


def run_folder(path: str) -> epath.Path | None:
  """Returns the local workdir at `path`; None for other weights."""
  folder = epath.Path(path).expanduser()
  is_run = not atomic_files.is_remote(path) and (
      folder / checkpoint_paths.FOLDER).is_dir()
  return folder if is_run else None


def add_config(
    parser: argparse.ArgumentParser, text: str = 'config file', *,
    required: bool = True,
) -> None:
  """Adds the flag of the config file, described by `text`."""
  parser.add_argument(
      '--config', required=required, default='',
      metavar='FILE.py[:name=value,...]',
      help=f'{text}; override values by --config.section.key=value, and list '
      'them by --config=FILE.py --help')


# Short forms of flags, with their keys and types.
SHORT_FLAGS: Mapping[str, tuple[str, type]] = {
    '--epochs': ('total.epochs', float),
    '--steps': ('total.steps', int),
    '--batch-size': ('batch_size', int),
    '--lr': ('optimizer.learning_rate', float),
    '--resolution': ('data.resolution', int),
    '--seed': ('seed', int)}


def add_run(parser: argparse.ArgumentParser, *, folder: str) -> None:
  """Adds the flags of training: a config, short forms of its flags, a workdir.

  `folder` describes the workdir. For the short forms see `short_overrides`.
  """
  add_config(parser)
  parser.add_argument(
      '--workdir', required=True, metavar='DIR',
      help=f'{folder}; the same command resumes what was interrupted')
  group = parser.add_argument_group('short forms of config flags')
  for flag, (key, kind) in SHORT_FLAGS.items():
    group.add_argument(
        flag, type=kind, metavar='N' if kind is int else 'X',
        dest=f'config.{key}',  # `batch_size` belongs to other commands.
        help=f'--config.{key}')


def check_flag(flag: str, known: Sequence[str]) -> None:
  """Raises a UserError for an unknown flag that names the nearest ones."""
  if flag in known:
    return
  keys = registry.optional(registry.KEYS)
  # Without dashes, which would make short flags similar to any other.
  names = [name[2:] for name in known if name.startswith('--')]
  hint = keys.nearest_flag(flag, known) if keys else re.sub(
      "'(.*)'", r'--\1', registry.nearest(flag.lstrip('-'), names))
  raise UserError(f'Unknown flag {flag!r}.{hint} Known: {", ".join(known)}.')


def short_overrides(args: argparse.Namespace) -> list[str]:
  """Returns the overrides 'section.key=value' of the short flags."""
  return [f'{key}={value}' for key, _ in SHORT_FLAGS.values()
          if (value := vars(args).get(f'config.{key}')) is not None]


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
  """Parses the values of --set to nested keyword arguments.

  They are 'num_heads=4' or, for a key of a section, 'table.label=breed'.
  """
  result: dict[str, Any] = {}
  for text in texts:
    key, value = schema.parse_assignment(text, usage='--set takes KEY=VALUE')
    *sections, last = key.split('.')
    inner = result
    for name in sections:
      inner = inner.setdefault(name, {})
      if not isinstance(inner, dict):
        raise UserError(f'--set={text}: {name} is {inner!r}, not a section.')
    read = schema.convert(value, Any, where=f'--set={key}')
    # The type of a field decides whether it is a text or 'none'.
    inner[last] = value if read is None or sections else read
  return result


def add_images(
    parser: argparse.ArgumentParser, *, required: bool = True,
    batch_size: int = 32,
) -> None:
  """Adds image paths and the batch size."""
  parser.add_argument(
      'paths', nargs='+' if required else '*', metavar='PATH',
      help='image files, folders (searched recursively), globs, or tables of '
      'images (.csv, .tsv, .jsonl), whose columns --config.data.table sets')
  parser.set_defaults(data_dir='')  # Allows --config.data.
  parser.add_argument(
      '--batch-size', type=int, default=batch_size, metavar='N',
      help='images per batch (default: %(default)s)')


def find_images(
    args: argparse.Namespace, run: Mapping[str, Any] | None = None, *,
    paths: Sequence[str] | None = None,
) -> tuple[dict[str, list[image_files.Labels]], dict[str, str]]:
  """Returns the images of `add_images`, or of other paths, and errors.

  See `image_files.find`.

  Without flags of the section data, tables with the columns that the config
  `run` names are read with its columns.
  """
  keys = data_keys(args, known=('target', 'table', 'group'))
  sections = [data_config.parse(keys)]
  trained = (run or {}).get('data', {})
  table = {**trained.get('table', {}), 'folder': '', 'split': None}
  if not keys and trained.get('target') not in (None, 'masks', 'none'):
    sections.insert(0, data_config.parse(
        {'target': trained['target'], 'table': table}))
  return image_files.find(args.paths if paths is None else paths, [
      columns_lib.LabelConfig(one.target, one.table, group=one.group)
      for one in sections])


def data_keys(
    args: argparse.Namespace, texts: Sequence[str] = (), *,
    known: Sequence[str] = ()) -> dict[str, Any]:
  """Returns the keys in `texts` and those of --config.data.key=value.

  `known` are the keys that the command takes: by default, all of the section.
  """
  for text in args.overrides:
    if not text.startswith('data.'):
      raise UserError(
          'This command takes keys of the section data, as '
          f'--config.data.KEY=VALUE, but got --config.{text}.')
  found = parse_overrides([
      *texts, *(text.removeprefix('data.') for text in args.overrides)])
  for name in found:  # Former keys are read from saved configs only.
    schema.check_name(
        name, known or [*vars(data_config.DataConfig())], what='key of data')
  if found.get('target', '') is None:
    found['target'] = 'none'  # A kind of labels.
  return found


def check_output(
    path: str, suffixes: Sequence[str], *, overwrite: bool | None = None,
) -> None:
  """Raises if an output file has an unknown suffix or exists already.

  Args:
    path: the file; '' for none.
    suffixes: those of its formats.
    overwrite: value of --overwrite; None for a command without this flag.
  """
  if path and not path.endswith(tuple(suffixes)):
    raise UserError(f'{path} must end with {" or ".join(suffixes)}.')
  replaceable = overwrite is not None and os.path.isfile(path)  # No bucket.
  if path and not (overwrite and replaceable):
    atomic_files.check_absent(
        epath.Path(path), 'Add --overwrite' if replaceable else 'Remove it')
