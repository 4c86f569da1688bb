"""Flags shared by several commands, and their values."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
import difflib
from typing import Any

from etils import epy

from vit_jax import registry
from vit_jax import schema

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
        '`embeddings` [classes, width] and `labels`; see docs/zero_shot.md'),
    '--labels': dict(
        default='', metavar='FILE',
        help='class names, one a line: a name for each output of the weights, '
        'in their order, or names that the weights have, in another order, '
        'which reorders the outputs'),
    '--flip': dict(
        action='store_true',
        help='average the outputs for each image and its mirror image, which '
        'takes twice as long'),
}


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


# Flags with their keys and types.
_SHORT_FLAGS: Mapping[str, tuple[str, type]] = {
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
  for flag, (key, kind) in _SHORT_FLAGS.items():
    group.add_argument(
        flag, type=kind, metavar='N' if kind is int else 'X',
        dest=f'config.{key}',  # `batch_size` belongs to other commands.
        help=f'--config.{key}')


def check_flag(flag: str, known: Sequence[str]) -> None:
  """Raises a ValueError for an unknown flag that names the nearest ones.

  Keys of the config are compared, too, where no flag is almost the same: they
  take seconds to import.
  """
  if flag in known:
    return
  given, meant = flag.replace('_', '-'), {name: [name] for name in known}
  if ('--config' in known
      and not difflib.get_close_matches(given, known, cutoff=0.8)
      and (keys := registry.optional(registry.KEYS))):
    short = {key: name for name, (key, _) in _SHORT_FLAGS.items()}
    for key in keys.names_of_configs():
      last = key.rpartition('.')[2].replace('_', '-')
      meant.setdefault(f'--{last}', []).extend([
          *{short.get(key, '')}.intersection(known), f'--config.{key}'])
  close = difflib.get_close_matches(given, meant, n=1)
  hint = ' or '.join(dict.fromkeys(meant[close[0]])) if close else ''
  raise ValueError(
      f'Unknown flag {flag!r}.' + f' Did you mean {hint}?' * bool(hint)
      + f' Known: {", ".join(known)}.')


def short_overrides(args: argparse.Namespace) -> list[str]:
  """Returns the overrides 'section.key=value' of the short flags."""
  given = {key: vars(args).get(f'config.{key}')
           for key, _ in _SHORT_FLAGS.values()}
  return [f'{key}={value}' for key, value in given.items() if value is not None]


def parse_overrides(
    texts: Sequence[str], *, flag: str = '--set') -> dict[str, Any]:
  """Parses KEY=VALUE texts to nested keyword arguments.

  Args:
    texts: 'num_heads=4' or, for a key of a section, 'table.label=breed'.
    flag: name of the flag, for messages.
  """
  result: dict[str, Any] = {}
  for text in texts:
    key, value = schema.parse_assignment(text, usage=f'{flag} takes KEY=VALUE')
    *sections, last = key.split('.')
    inner = result
    for name in sections:
      inner = inner.setdefault(name, {})
      if not isinstance(inner, dict):
        raise ValueError(f'{flag}={text}: {name} is {inner!r}, not a section.')
    inner[last] = schema.convert(value, Any, where=f'{flag}={key}')
  return result


def add_data(
    parser: argparse.ArgumentParser, *, positional: bool = False) -> None:
  """Adds the flags of a dataset: --source and others for `data_overrides`."""
  what = 'dataset, as in data.source: a folder, a TFDS name, ...'
  if positional:
    parser.add_argument('source', metavar='SOURCE', help=what)
  else:
    parser.add_argument('--source', required=True, metavar='DATA', help=what)
  parser.add_argument(
      '--data-dir', default='', metavar='DIR',
      help='TFDS directory (default: $TFDS_DATA_DIR or ~/tensorflow_datasets)')
  parser.add_argument(
      '--set', action='append', default=[], metavar='KEY=VALUE',
      help='set another field of the section data, as --config.data.KEY=VALUE '
      'does: table.label=breed')


def data_overrides(args: argparse.Namespace) -> dict[str, Any]:
  """Returns the fields of the section `data` given by `add_data`'s flags.

  These are also read from --config.data.key=value, as messages name them.
  """
  return {'source': args.source, 'data_dir': args.data_dir,
          **_data_keys(args, args.set)}


def _data_keys(
    args: argparse.Namespace, texts: Sequence[str] = ()) -> dict[str, Any]:
  """Returns the keys in `texts` and those of --config.data.key=value."""
  changed = parse_overrides(args.overrides, flag='--config')
  if changed.keys() - {'data'}:
    raise ValueError(
        'This command takes keys of the section data, as '
        f'--config.data.KEY=VALUE, but got --config.{args.overrides[0]}.')
  found = parse_overrides([
      *texts, *(text.partition('.')[2] for text in args.overrides)])
  for name in found:  # Former keys are read from saved configs only.
    schema.check_name(
        name, [*vars(data_config.DataConfig())], what='key of data')
  if found.get('target', '') is None:
    found['target'] = 'none'  # A kind of labels.
  return found


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
    args: argparse.Namespace,
) -> tuple[dict[str, list[image_files.Labels]], dict[str, str]]:
  """Returns the images of `add_images` and errors; see `image_files.find`."""
  section = data_config.parse(_data_keys(args))
  return image_files.find(
      args.paths, columns_lib.LabelConfig(
          section.target, section.table, group=section.group))


def check_output(path: str, suffixes: Sequence[str]) -> None:
  """Raises if an output file has an unknown suffix or exists already."""
  if path and not path.endswith(tuple(suffixes)):
    raise ValueError(
        f'{path} must end with {" or ".join(suffixes)}, which selects the '
        'format.')
  if path:
    check_absent(path)


def check_absent(path: str) -> None:
  """Raises a `FileExistsError` if a local `path` exists."""
  if not atomic_files.is_remote(path):
    atomic_files.check_absent(epath.Path(path))
