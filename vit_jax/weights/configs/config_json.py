"""Reads config.json of any library whose parser is in this folder."""

from collections.abc import Container
import json
import pathlib
from typing import Any

from vit_jax import untrusted
from vit_jax.weights.configs import declared as declared_lib
from vit_jax.weights.configs import huggingface
from vit_jax.weights.configs import preprocessing
from vit_jax.weights.configs import timm

# JSON may hold a list where an object is expected, at any depth.
_MALFORMED = (ValueError, TypeError, AttributeError, KeyError, IndexError,
              ZeroDivisionError, OverflowError)


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Returns the object in a JSON file.

  Raises:
    ValueError: if the file is not JSON, or not an object.
  """
  try:
    found = json.loads(untrusted.read_text(path))
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{path.name} is not JSON: {error}') from error
  if not isinstance(found, dict):
    raise ValueError(
        f'{path.name} must be a JSON object, but is {type(found).__name__}.')
  return found


def read(
    path: pathlib.Path, *, overrides: Container[str] = (),
) -> declared_lib.Declared:
  """Reads config.json, and preprocessor_config.json in the same folder.

  Raises:
    ValueError: if a setting that is not in `overrides` is malformed or not
      supported.
  """
  try:
    config = read_json(path)
    if timm.recognises(config):
      result = timm.parse(config, overrides)
    elif huggingface.recognises(config):
      result = huggingface.parse(config, overrides)
    else:
      return declared_lib.Declared(notes=(
          f'ignored {path}: neither a timm nor a Hugging Face config',))
    processor = path.with_name('preprocessor_config.json')
    if processor.exists():
      result.preprocess |= huggingface.parse_preprocessor(
          read_json(processor), overrides)
    # The weights may decide the resolution; it is a placeholder here.
    preprocessing.parse({'resolution': (1, 1), **result.preprocess})
  except _MALFORMED as error:
    reason = (str(error) if isinstance(error, ValueError)
              else f'it is malformed: {type(error).__name__}: {error}')
    raise ValueError(f'{path} cannot be used: {reason}\n{ADVICE}') from error
  result.source = str(path)
  return result


ADVICE = ('If it belongs to another model, move the weights out of its folder, '
          'and override its settings: load(file, num_heads=...).')
