"""Metadata that vit_jax writes with exported weights, so that nothing is lost.

    safetensors: JSON under the key `vit_jax` of the file's metadata
    npz:         the same JSON in a file of the same stem, `model.json`
"""

import dataclasses
import json
import pathlib
from typing import Any, Literal

from vit_jax import models
from vit_jax import schema
from vit_jax.checkpoints import saved_config
from vit_jax.models import vit_config
from vit_jax.weights import files
from vit_jax.weights.configs import declared
from vit_jax.weights.configs import preprocessing

KEY = 'vit_jax'


@dataclasses.dataclass(frozen=True)
class _Metadata:
  """Schema of the JSON.

  Attributes:
    model: section `model`.
    preprocess: fields of `Preprocess`.
    resolution: image size of the position embeddings; by default that of
      `preprocess`.
    positions: how position embeddings are resized.
  """
  model: dict[str, Any]
  preprocess: dict[str, Any]
  resolution: tuple[int, int] | None = None
  positions: Literal['linear', 'cubic'] | None = None


def dumps(
    config: models.ModelConfig, *, resolution: tuple[int, int],
    preprocess: preprocessing.Preprocess, positions: str,
) -> str:
  """Returns the JSON text for a model."""
  return json.dumps({
      'model': schema.to_plain(config),
      'preprocess': schema.to_plain(preprocess),
      'resolution': list(resolution), 'positions': positions})


def json_beside(path: str) -> str:
  """Returns the path or address of the JSON beside an .npz."""
  return path.removesuffix('.npz') + '.json'


def find(opened: files.ArrayFile) -> declared.Declared | None:
  """Returns the settings that vit_jax wrote with a file; None if it did not.

  Raises:
    ValueError: if the metadata is damaged.
  """
  if KEY in opened.metadata:
    return _parse(opened.metadata[KEY], f'{KEY} in the metadata of '
                  f'{opened.path}')
  beside = pathlib.Path(json_beside(opened.path))
  if opened.format != 'npz' or not beside.is_file():
    return None
  return _parse(beside.read_text(), str(beside), optional=True)


def _parse(
    text: str, source: str, *, optional: bool = False,
) -> declared.Declared | None:
  """Parses the JSON; None if it is `optional` and has another purpose."""
  try:
    data = json.loads(text)
    if optional and not (isinstance(data, dict) and 'preprocess' in data):
      return None
    found = schema.parse(_Metadata, data, where='metadata')
    config = models.parse(
        saved_config.upgrade({'model': found.model})['model'])
    preprocess = preprocessing.parse(found.preprocess)
  except (ValueError, RecursionError, TypeError, AttributeError) as error:
    raise ValueError(f'{source} is malformed: {error}') from error
  result = declared.Declared(
      source=source, ours=True, model=schema.to_plain(config),
      preprocess={name: getattr(preprocess, name)
                  for name in preprocessing.NAMES},
      resolution=found.resolution or preprocess.resolution,
      positions=found.positions)
  if isinstance(config, vit_config.ViTConfig):
    result.embeds_prefix = config.has_cls and config.position_cls
  return result
