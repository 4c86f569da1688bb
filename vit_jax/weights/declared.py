"""Settings that vit_jax writes with weights, so that nothing is lost.

    checkpoint:  the config of its run, or of `save`
    npz:         JSON in a file of the same stem, `model.json`
    safetensors: JSON under the key `vit_jax` of the file's metadata

It is the only record that is read; a config.json beside it is for others.
"""

import dataclasses
import pathlib
from typing import Any

from vit_jax import exceptions
from vit_jax import registry
from vit_jax import schema
from vit_jax import untrusted
from vit_jax.checkpoints import paths
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.models import positions as positions_lib
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import npz

KEY = 'vit_jax'


@dataclasses.dataclass(frozen=True)
class Declared:
  """Complete settings of weights; the fields are those of `Weights`."""
  config: model_config.ModelConfig
  preprocess: preprocessing.Preprocess
  resolution: tuple[int, int]
  positions: positions_lib.Interpolation = 'linear'
  notes: tuple[str, ...] = ()
  source: str = ''


@dataclasses.dataclass(frozen=True)
class Metadata:
  """Schema of our metadata, and of the part of a run's config that loads it.

  Attributes:
    model: section `model`.
    preprocess: fields of `Preprocess`. Runs have none: the sections `data` and
      `objective` determine them.
    resolution: image size of the position embeddings; by default that of
      `preprocess`.
    positions: interpolation of position embeddings.
    data: section `data` of a run.
    objective: section `objective` of a run.
    checksum: that of the arrays in the .npz file, which is another file.
    files: of earlier versions; ignored.
  """
  model: dict[str, Any]
  preprocess: dict[str, Any] | None = None
  resolution: int | tuple[int, int] | None = None
  positions: positions_lib.Interpolation = 'linear'
  data: dict[str, Any] = dataclasses.field(default_factory=dict)
  objective: dict[str, Any] = dataclasses.field(default_factory=dict)
  checksum: str = ''
  files: Any = None

  def parse(self, source: str) -> Declared:
    """Returns the typed settings."""
    config = factory.parse(self.model)
    section, notes = self.preprocess or self._of_run(), ()
    if isinstance(section.get('ops'), (list, tuple)) and (
        earlier := registry.optional(registry.EARLIER)):
      section, notes = earlier.fixed_size(section)
    preprocess = preprocessing.parse(section)
    resolution = preprocess.resolution if self.resolution is None else (
        preprocessing.parse({'resolution': self.resolution}).resolution)
    return Declared(
        config, preprocess, resolution, self.positions, notes, source)

  def _of_run(self) -> dict[str, Any]:
    """Returns the preprocessing of a run."""
    activation = 'none' if self.data.get('target_std') else (
        'sigmoid' if self.objective.get('loss') == 'sigmoid' else 'softmax')
    return {**preprocessing.from_data(self.data), 'activation': activation}


def metadata(model: weights_lib.Weights) -> dict[str, Any]:
  """Returns the metadata of a model, as plain data."""
  return {'model': schema.to_plain(model.config),
          'preprocess': preprocessing.to_plain(model.preprocess),
          'resolution': list(model.resolution), 'positions': model.positions}


def json_path(path: str) -> str:
  """Returns the path or address of the JSON file of an .npz file."""
  return path.removesuffix('.npz') + '.json'


def read_metadata(opened: array_file.ArrayFile) -> Declared | None:
  """Returns the settings that vit_jax wrote with a file; None if it did not.

  Raises:
    UserError: if the metadata is damaged, or of other weights.
  """
  path = paths.display(opened.path)
  file = pathlib.Path(json_path(opened.path))
  if KEY in opened.metadata:
    text, source = opened.metadata[KEY], f'{KEY} in the metadata of {path}'
  elif opened.format == 'npz' and file.exists():
    text, source = untrusted.read_text(file), paths.display(file)
  else:
    return None
  with exceptions.within(f'{source} is malformed'):
    data = untrusted.parse_json(text)
    if KEY not in opened.metadata and not (
        isinstance(data, dict) and 'preprocess' in data):
      return None  # Unrelated JSON.
    found = schema.parse(Metadata, data, where='metadata')
    result = found.parse(source)
  arrays = opened.metadata.get(npz.CHECKSUM)
  if found.checksum not in ('', arrays):
    raise UserError(
        f'{source} was written for other weights: the checksum of their arrays '
        f'is {found.checksum}, but that of {path} is {arrays}. Copy or '
        'download both files again, which `convert` wrote together; or remove '
        'checksum from the .json file if it describes these weights.')
  return result
