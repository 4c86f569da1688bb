"""Card, licence and upload of converted weights: flags of `convert`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import os
import re
from typing import TYPE_CHECKING

from etils import epy

from vit_jax.exceptions import UserError
from vit_jax.exceptions import UserFileError

if TYPE_CHECKING:
  from vit_jax.inference import model as model_lib

with epy.lazy_imports():
  from etils import epath
  import huggingface_hub

  from vit_jax import atomic_files
  from vit_jax import tree
  from vit_jax.checkpoints import paths
  from vit_jax.extras.cards import model_card
  from vit_jax.run import workdir
  from vit_jax.weights import download
  from vit_jax.weights import save as save_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of uploads."""
  parser.add_argument(
      '--push', default='', metavar='USER/NAME',
      help='upload the folder --target to a new or existing repository of the '
      'Hugging Face hub; log in with `hf auth login`')
  parser.add_argument(
      '--licence', default='', metavar='ID',
      help='licence for --push, such as apache-2.0 (default: that of the card)')
  parser.add_argument(
      '--private', action='store_true', help='for --push: a private repository')


def prepare(
    args: argparse.Namespace, model: model_lib.Model) -> Callable[[], str]:
  """Returns the function that writes the card and uploads `args.target`.

  It returns the address of the commit, '' without --push. Mistakes in flags
  are errors here, before anything is written.
  """
  if args.push and not re.fullmatch(r'[\w.-]+/[\w.-]+', args.push):
    raise UserError(f'--push must be USER/NAME; got {args.push!r}.')
  if args.push and args.format != 'timm':
    raise UserError('--push needs --format=timm.')
  card, licence = _card(args, model), _licence_text(args) if args.push else ''

  def publish() -> str:
    folder = epath.Path(args.target)
    if card and folder.is_dir():
      name = workdir.CARD if args.format == save_lib.ORBAX else 'README.md'
      atomic_files.write_text(folder / name, card)
    if licence:
      atomic_files.write_text(folder / 'LICENSE', licence)
    return _push(args.target, args.push, private=args.private) if (
        args.push) else ''

  return publish


def _card(args: argparse.Namespace, model: model_lib.Model) -> str:
  """Returns the model card of a run, or '' if there is none.

  For weights without a card, --push writes a short one.
  """
  source = epath.Path(args.source) / workdir.CARD
  path = f'hf://{args.push}' if args.push else args.target
  predicts = bool(model.config.num_classes)
  # Only runs have cards of ours; etils would look for one on the hub.
  has_card = not args.source.startswith(('hf://', 'https://')) and (
      source.exists())
  of_run = source.read_text() if has_card else ''
  # It describes the model with its own settings and class names.
  is_changed = args.set or args.labels or args.text_embeddings
  text = '' if is_changed else model_card.replace_path(
      of_run, path, predicts=predicts)
  if text and args.which != paths.AUTO and (
      paths.find(args.source, which=args.which).name != paths.find(
          args.source, which=paths.AUTO).name):
    # The metrics are those of the other checkpoint.
    text = model_card.without_metrics(text)
  if not args.push:
    return text
  return model_card.for_hub(
      text or model_card.of_weights(
          args.push, f'{tree.num_elements(model.params):,} parameters, '
          f'{model.image_size}. Converted from {_public(args.source)}.',
          predicts=predicts, licence=model_card.licence(of_run)),
      library='timm', licence=args.licence)


def _public(address: str) -> str:
  """Returns an address without local folders, which cards do not reveal."""
  return address if '://' in address else os.path.basename(
      os.path.normpath(address))


def _licence_text(args: argparse.Namespace) -> str:
  """Returns the text of the licence to upload, or '' if it is unknown."""
  source = download.fetch(args.source, log=lambda _: None)
  files = sorted(path for path in source.iterdir() if path.name.startswith(
      'LICENSE')) if source.is_dir() else []
  return files[0].read_text() if files else ''


def _push(folder: str, repository: str, *, private: bool) -> str:
  """Uploads a local folder to USER/NAME; returns the address of the commit.

  The repository is created if necessary. The hub identifies large files by
  their SHA-256, so it refuses incomplete ones.

  Raises:
    OSError: if the hub cannot be reached, or denies access.
  """
  api = huggingface_hub.HfApi()
  try:
    api.create_repo(repository, private=private, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repository, folder_path=folder,
        commit_message='Upload a model with vit_jax')
  except (OSError, RuntimeError) as error:
    raise UserFileError(
        f'{folder} could not be uploaded to {repository}: '
        f'{type(error).__name__}: {error} Log in with a token that has write '
        'access: hf auth login.') from error
  return str(commit.commit_url)
