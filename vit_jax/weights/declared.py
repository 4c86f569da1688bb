"""Settings that a file declares for weights: our own metadata, or config.json.

vit_jax writes metadata with exported weights, so that nothing is lost:

    safetensors: JSON under the key `vit_jax` of the file's metadata
    npz:         the same JSON in a file of the same stem, `model.json`

It is the only record that is read; a config.json beside it is for others.
"""

from collections.abc import Container, Mapping
import dataclasses
import pathlib
from typing import Any

from vit_jax import schema
from vit_jax import untrusted
from vit_jax.checkpoints import paths
from vit_jax.data import preprocessing
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import npz

KEY = 'vit_jax'
# Files beside weights in which timm and Transformers describe them.
CONFIG_FILES = (
    'config.json', 'processor_config.json', 'preprocessor_config.json')
# Settings whose origin every load reports.
REPORTED = ('mean', 'std', 'ops', *preprocessing.TERMS, 'labels', 'num_heads')


@dataclasses.dataclass
class Declared:
  """Declared settings; `weights.foreign` compares them with the arrays.

  Attributes:
    source: file that declares them.
    families: names of the weight families it can describe; () for any.
    ours: whether vit_jax wrote it, so that it is complete.
    model: keys of the section `model`.
    preprocess: arguments of `preprocessing.parse`.
    resolution: image height and width of the position embeddings.
    positions: interpolation of position embeddings.
    embeds_prefix: whether class token and registers have position embeddings.
    origins: origins of the keys of `model` and `preprocess` that `source`
      itself does not declare.
    notes: lines for the load summary.
  """
  source: str = ''
  families: tuple[str, ...] = ()
  ours: bool = False
  model: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)
  resolution: tuple[int, int] | None = None
  positions: positions_lib.Interpolation | None = None
  embeds_prefix: bool | None = None
  origins: dict[str, str] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()

  def add_defaults(self, preprocess: Mapping[str, Any], origin: str) -> None:
    """Adds keys of `Preprocess` that are not declared."""
    for name in preprocess.keys() - self.preprocess.keys():
      self.preprocess[name] = preprocess[name]
      self.origins[name] = origin

  def replace(self, preprocess: Mapping[str, Any], origin: str) -> None:
    """Sets keys of `Preprocess`; operations replace a resize and a crop."""
    if 'ops' in preprocess:
      for term in ('keep_aspect', 'crop'):
        self.preprocess.pop(term, None)
    self.preprocess |= preprocess
    self.origins |= dict.fromkeys(preprocess, origin)

  def settings(self, given: Container[str]) -> dict[str, str]:
    """Returns the origins of `REPORTED`; the caller sets the keys in `given`.
    """
    result = {}
    for name in REPORTED:
      # Operations declare what the terms of timm describe.
      key = 'ops' if name in preprocessing.TERMS and (
          name not in self.preprocess) else name
      declared = key in self.preprocess or key in self.model
      result[name] = self.origins.get(key) or (
          f'declared by {self.source}' if declared else 'assumed')
    return result | given_settings(given)


def given_settings(given: Container[str]) -> dict[str, str]:
  """Returns the origin of the settings in `REPORTED` that the caller gives."""
  return {name: weights_lib.GIVEN for name in REPORTED if name in given or (
      name in preprocessing.TERMS and 'ops' in given)}


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
  """
  model: dict[str, Any]
  preprocess: dict[str, Any] | None = None
  resolution: int | tuple[int, int] | None = None
  positions: positions_lib.Interpolation = 'linear'
  data: dict[str, Any] = dataclasses.field(default_factory=dict)
  objective: dict[str, Any] = dataclasses.field(default_factory=dict)
  checksum: str = ''

  def size(self, preprocess: preprocessing.Preprocess) -> tuple[int, int]:
    """Returns the image size of the position embeddings."""
    if self.resolution is None:
      return preprocess.resolution
    return preprocessing.parse({'resolution': self.resolution}).resolution


def metadata(model: weights_lib.Weights) -> dict[str, Any]:
  """Returns the metadata of a model, as plain data."""
  return {'model': schema.to_plain(model.config),
          'preprocess': preprocessing.to_plain(model.preprocess),
          'resolution': list(model.resolution), 'positions': model.positions}


def fixed_size(
    preprocess: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[str, ...]]:
  """Returns stored preprocessing with images of one size, and notes.

  NaFlex weights that were converted earlier kept the aspect ratio of images.
  """
  ops = [op if op.get('op') != 'resize_to_patches' else
         {'op': 'resize', 'method': op.get('method', 'bilinear')}
         for op in preprocess.get('ops') or ()]
  if ops == (preprocess.get('ops') or []):
    return dict(preprocess), ()
  return {**preprocess, 'ops': ops}, (
      f'images are resized to {preprocess.get("resolution")}: the operation '
      'resize_to_patches, which kept their aspect ratio, ended',)


def json_path(path: str) -> str:
  """Returns the path or address of the JSON file of an .npz file."""
  return path.removesuffix('.npz') + '.json'


def read_metadata(opened: array_file.ArrayFile) -> Declared | None:
  """Returns the settings that vit_jax wrote with a file; None if it did not.

  Raises:
    ValueError: if the metadata is damaged, or of other weights.
  """
  npz_json = pathlib.Path(json_path(opened.path))
  if KEY in opened.metadata:
    text = opened.metadata[KEY]
    source = f'{KEY} in the metadata of {paths.display(opened.path)}'
  elif opened.format == 'npz' and untrusted.exists(npz_json):
    text, source = untrusted.read_text(npz_json), paths.display(npz_json)
  else:
    return None
  try:
    data = untrusted.parse_json(text)
    if KEY not in opened.metadata and not (
        isinstance(data, dict) and 'preprocess' in data):
      return None  # Unrelated JSON.
    data.pop('files', None)  # Of earlier versions.
    found = schema.parse(Metadata, data, where='metadata')
    config = factory.parse(found.model)
    section, notes = fixed_size(found.preprocess or {})
    preprocess = preprocessing.parse(section)
    resolution = found.size(preprocess)
  except (ValueError, TypeError, AttributeError) as error:
    raise ValueError(f'{source} is malformed: {error}') from error
  arrays = opened.metadata.get(npz.CHECKSUM)
  if found.checksum not in ('', arrays):
    raise ValueError(
        f'{source} was written for other weights: the checksum of their arrays '
        f'is {found.checksum}, but that of {paths.display(opened.path)} is '
        f'{arrays}. Copy or download both files again, which `convert` wrote '
        'together; or remove checksum from the .json file if it describes '
        'these weights.')
  result = Declared(
      source=source, ours=True, model=schema.to_plain(config),
      preprocess={f.name: getattr(preprocess, f.name)
                  for f in dataclasses.fields(preprocess)},
      resolution=resolution, positions=found.positions, notes=notes)
  if config.has_tokens:
    result.embeds_prefix = config.has_cls and getattr(
        config, 'position_cls', True)
  return result


def sides(value: Any) -> tuple[int, int]:
  """Returns an image size, one number or [height, width], as a pair."""
  height, width = (value, value) if isinstance(value, int) else value
  return int(height), int(width)


def class_names(value: Any) -> tuple[str, ...]:
  """Returns class names from a list, or from a dict of their indices.

  Raises:
    ValueError: if the indices are not 0, 1 and so on.
  """
  if isinstance(value, Mapping):
    keys = sorted(value, key=int)
    if [*map(int, keys)] != [*range(len(keys))]:
      raise ValueError(
          f'{len(keys)} class names must have the indices 0 to '
          f'{len(keys) - 1}, but the first are {", ".join(keys[:8])}. Correct '
          'id2label or label_names in config.json.')
    value = [value[key] for key in keys]
  return tuple(map(str, value))
