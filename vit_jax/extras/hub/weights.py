"""Downloads weights from the Hugging Face hub into its own cache."""

from collections.abc import Callable
import contextlib
import re

from etils import epath
import huggingface_hub

from vit_jax import exceptions
from vit_jax.exceptions import NotFoundError
from vit_jax.exceptions import UserError
from vit_jax.exceptions import UserFileError

# In order of preference.
_PATTERNS = ('*.safetensors', '*.npz', '*.bin', '*.pth', '*.pt')


def fetch(text: str, log: Callable[[str], None]) -> epath.Path:
  """Downloads a file, or the weights and JSON files of a repository."""
  match = re.fullmatch(r'([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?', text)
  if not match:
    raise UserError(
        'The address of a model on the Hugging Face hub is hf://user/model'
        f'[@revision][/file], but is hf://{text}.')
  repository, revision, file = match.groups()
  with _explained(text):
    names = huggingface_hub.list_repo_files(repository, revision=revision)
  weights = file or next(
      (pattern for pattern in _PATTERNS
       if any(name.endswith(pattern[1:]) for name in names)), '')
  if not weights:
    raise UserError(
        f'hf://{text} has no weights of a known format '
        f'({" ".join(_PATTERNS)}). It holds {", ".join(names[:20])}.')
  patterns = [weights, f'{weights.rpartition("/")[0]}*.json', 'LICENSE*']
  with _explained(text):
    folder = epath.Path(huggingface_hub.snapshot_download(
        repository, revision=revision, allow_patterns=patterns))
  if file and file not in names:
    raise NotFoundError(f'There is nothing at hf://{text}.')
  log(f'fetched hf://{text}\n        {folder}')
  return folder / file if file else folder


def _explained(text: str) -> contextlib.AbstractContextManager[None]:
  """Explains the exceptions of the library and of its HTTP client.

  Some of its errors of the connection are FileNotFoundErrors, which means here
  that the hub has no such file.
  """
  return exceptions.replaced_by(lambda error: UserFileError(
      f'hf://{text} could not be fetched: {type(error).__name__}: {error}'))
