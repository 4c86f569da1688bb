"""Uploads a folder of weights to the Hugging Face hub, and verifies it."""

import pathlib

import huggingface_hub

from vit_jax.weights import download


def push(folder: str, repository: str, *, private: bool) -> str:
  """Uploads a local folder to USER/NAME; returns the address of the commit.

  The repository is created if necessary. Afterwards, files are compared by
  size, and large ones by their SHA-256.

  Raises:
    OSError: if the hub cannot be reached, or denies access.
    ValueError: if the hub has other files.
  """
  api = huggingface_hub.HfApi()
  try:
    api.create_repo(repository, private=private, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repository, folder_path=folder,
        commit_message='Upload a model with vit_jax')
    files = api.model_info(
        repository, revision=commit.oid, files_metadata=True).siblings or []
  except (OSError, RuntimeError) as error:
    raise OSError(
        f'{folder} could not be uploaded to {repository}: '
        f'{type(error).__name__}: {error} Log in with a token that may write: '
        'hf auth login.') from error
  remote = {file.rfilename: file for file in files}
  for path in sorted(pathlib.Path(folder).iterdir()):
    file = remote.get(path.name)
    if file is None or file.size != path.stat().st_size or (
        file.lfs and file.lfs.sha256 != download.checksum(path)):
      raise ValueError(
          f'{repository} has another {path.name} than {folder} after the '
          'upload. Do not use it; run the command again.')
  return str(commit.commit_url)
