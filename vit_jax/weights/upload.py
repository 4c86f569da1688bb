"""Uploads a folder of weights to the Hugging Face hub."""

import huggingface_hub


def push(folder: str, repository: str, *, private: bool) -> str:
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
    raise OSError(
        f'{folder} could not be uploaded to {repository}: '
        f'{type(error).__name__}: {error} Log in with a token that has write '
        'access: hf auth login.') from error
  return str(commit.commit_url)
