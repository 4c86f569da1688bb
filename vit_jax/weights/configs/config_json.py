"""Reads config.json of any library whose parser is in this folder."""

from collections.abc import Container
import pathlib

from vit_jax import untrusted
from vit_jax.weights.configs import declared as declared_lib
from vit_jax.weights.configs import huggingface
from vit_jax.weights.configs import preprocessing
from vit_jax.weights.configs import timm

# JSON may hold a list where an object is expected, at any depth.
_MALFORMED = (ValueError, TypeError, AttributeError, KeyError, IndexError,
              ZeroDivisionError, OverflowError)


def read(
    path: pathlib.Path, *, overrides: Container[str] = (),
) -> declared_lib.Declared:
  """Reads config.json, and preprocessor_config.json in the same folder.

  Args:
    path: path of config.json.
    overrides: names of settings that the caller gives.

  Raises:
    ValueError: if a setting is malformed or not supported.
  """
  try:
    config = untrusted.read_json(path)
    if timm.recognises(config):
      result = timm.parse(config)
    elif huggingface.recognises(config):
      result = huggingface.parse(config)
    else:
      return declared_lib.Declared(notes=(
          f'ignored {path}: neither a timm nor a Hugging Face config',))
    processor = path.with_name('preprocessor_config.json')
    if processor.exists():
      found = huggingface.parse_preprocessor(
          untrusted.read_json(processor), overrides)
      if 'ops' in found:  # They replace those of config.json.
        for name in preprocessing.TERMS:
          result.preprocess.pop(name, None)
      result.preprocess |= found
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
