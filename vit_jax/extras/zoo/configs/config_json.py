"""Reads config.json of any library whose parser is in this folder."""

import pathlib

from vit_jax import untrusted
from vit_jax.checkpoints import paths
from vit_jax.extras.zoo import declared as declared_lib
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.extras.zoo.configs import timm
from vit_jax.extras.zoo.families import families

NAME = 'config.json'
# Transformers uses the first of these files that has the settings. Version 5
# writes them into the section `image_processor` of the first one.
PROCESSORS = {'processor_config.json': 'image_processor',
              'preprocessor_config.json': ''}
# JSON may hold a list where an object is expected, at any depth.
_MALFORMED = (ValueError, TypeError, AttributeError, KeyError, IndexError,
              ZeroDivisionError, OverflowError)


def read(path: pathlib.Path) -> declared_lib.Declared:
  """Reads config.json, and the image processor's JSON in the same folder.

  Raises:
    ValueError: if a setting is malformed or not supported.
  """
  try:
    config = untrusted.read_json(path)
    library = next(
        (one for one in (timm, huggingface) if one.recognises(config)), None)
    if library is None:
      return declared_lib.Declared(notes=(
          f'ignored {path}: neither a timm nor a Hugging Face config',))
    result = library.parse(config)
    for name, section in PROCESSORS.items():
      file = path.with_name(name)
      if not file.exists():
        continue
      processor = untrusted.read_json(file)
      found = processor.get(section) if section else processor
      if found is None:
        continue
      preprocess = huggingface.parse_preprocessor(found)
      if any(families.FAMILIES[one].normalizes for one in result.families):
        preprocess = huggingface.in_model(preprocess, result.preprocess)
      result.replace(preprocess, f'declared by {paths.display(file)}')
      break
    # The weights may decide the resolution; it is a placeholder here.
    resize_and_crop.parse({'resolution': (1, 1), **result.preprocess})
  except _MALFORMED as error:
    reason = (str(error) if isinstance(error, ValueError)
              else f'it is malformed: {type(error).__name__}: {error}')
    raise ValueError(f'{path} cannot be used: {reason}\n{ADVICE}') from error
  result.source = paths.display(path)
  return result


ADVICE = ('If it is damaged, copy or download it again. If it belongs to '
          'another model, move the weights out of its folder, and override its '
          'settings: load(file, num_heads=...).')
