"""What is said of a model beside its arrays: in the file, or config.json."""

from collections.abc import Mapping
import dataclasses
import json
import pathlib
from typing import Any, Literal

from vit_jax import models
from vit_jax import schema
from vit_jax.models import vit_config
from vit_jax.weights import claims as claims_lib
from vit_jax.weights import infer_architecture
from vit_jax.weights import load_report
from vit_jax.weights import matching
from vit_jax.weights import overrides
from vit_jax.weights import sizes
from vit_jax.weights.configs import config_json
from vit_jax.weights.configs import preprocessing as preprocessing_lib

KEY = 'vit_jax'  # In the metadata of a file: JSON, of the form of `_Own`.
OWN = 'the file itself'
_SHOWN = ('variant', 'num_heads', 'gelu', 'layer_norm_epsilon', 'pooling')


@dataclasses.dataclass(frozen=True)
class _Own:
  """What our safetensors files say: plain data of both records.

  Attributes:
    model: the section `model`, of the model's own config.
    preprocess: that of `Preprocess`.
    resolution: of the images of the positions, if not that of `preprocess`.
    positions: how they are resized, if not as the format's own library does.
  """
  model: dict[str, Any]
  preprocess: dict[str, Any]
  resolution: tuple[int, int] | None = None
  positions: Literal['linear', 'cubic'] | None = None


@dataclasses.dataclass
class Hints:
  """What is known beside the arrays.

  Attributes:
    section: keys of the section `model`.
    preprocess: keys of `Preprocess`.
    resolution: height and width that the positions are for, if said.
    positions: how they are resized, if said.
    embedded: whether class token and registers have positions, if said.
    source: where all of this is from; '' if there is nothing.
    shown: of the section, what is worth a line.
    notes: lines on what was there, but is not used.
  """
  section: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)
  resolution: tuple[int, int] | None = None
  positions: str | None = None
  embedded: bool | None = None
  source: str = ''
  shown: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()


def find(
    path: pathlib.Path, found: matching.Found, told: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Hints:
  """Returns what the file itself says, else the config.json beside it.

  Args:
    path: a file, whose neighbours may be of another model; or a folder, whose
      files belong together.
    found: the file of weights.
    told: what its arrays tell.
    given: overrides, by their names: what they say is not asked of a config.

  Raises:
    ValueError: if a file, or a folder, contradicts itself.
  """
  said = given.get('position_cls') if told.get('cls') else None
  told = {**told, 'embedded': said}
  result = _beside(path, found, told, given)
  if KEY in found.opened.metadata:
    result = _own(found, told, given)
  return dataclasses.replace(result, embedded=_embedded(told, result.embedded))


def _embedded(told: Mapping[str, Any], said: bool | None) -> bool | None:
  return said if told['embedded'] is None else told['embedded']


# ------------------------------------------------------------ the file itself


def _own(
    found: matching.Found, told: Mapping[str, Any], given: Mapping[str, Any],
) -> Hints:
  where = f'{KEY} in the metadata of {found.opened.path}'
  try:
    said = json.loads(found.opened.metadata[KEY])
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{where} is not JSON: {error}') from error
  own = schema.parse(_Own, said, where=where)
  try:
    config = models.parse(own.model)
    preprocess = preprocessing_lib.parse(own.preprocess)
    if config.variant and not sizes.is_of(schema.to_plain(config)):
      raise ValueError(
          f'variant {config.variant!r} is of other dimensions than the model '
          'that is said beside it. Leave the variant away.')
    if isinstance(config, vit_config.ViTConfig):
      overrides.check_positive(
          'layer_norm_epsilon', config.layer_norm_epsilon,
          'layer_norm_epsilon')
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error
  section = schema.to_plain(config)
  resolution = own.resolution or preprocess.resolution
  claims = {**section, 'resolution': resolution}
  embedded = None
  if isinstance(config, vit_config.ViTConfig):
    claims['cls'] = config.has_cls
    embedded = config.has_cls and config.position_cls
  different = contradictions(
      claims, {**told, 'embedded': _embedded(told, embedded)}, given)
  if different:
    raise ValueError(
        f'{where} contradicts the arrays of that file:\n'
        + load_report.indented(different))
  if any(section.get(name) != given[name] for name in vit_config.DIMENSIONS
         if name in given):
    section.pop('variant')  # It is no more what the file was called.
  return Hints(
      section=section, resolution=resolution, positions=own.positions,
      embedded=embedded, source=OWN, preprocess={
          f.name: getattr(preprocess, f.name)
          for f in dataclasses.fields(preprocess)},
      shown={k: section[k] for k in _SHOWN if section.get(k)})


# ------------------------------------------------------------------ config.json


class _NotOursError(ValueError):
  """The config is that of the weights, and our models are not like that."""


def _beside(
    path: pathlib.Path, found: matching.Found, told: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Hints:
  whole = path.is_dir()
  file = (path if whole else path.parent) / 'config.json'
  if not file.is_file():
    return Hints()
  try:
    return _of_config(file, found, told, given)
  except _NotOursError:
    raise
  except ValueError as error:
    if whole:
      raise ValueError(
          f'{file} is not of the weights beside it: {error}\n'
          'Take both from one model; or load the file of weights alone, and '
          'say what it does not: load(file, num_heads=...).') from error
    reason = ' '.join(str(error).split())
    return Hints(notes=(f'ignored {file}, not of this file: {reason}',))


def _of_config(
    file: pathlib.Path, found: matching.Found, told: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Hints:
  config = config_json.parse(config_json.read_json(file), given)
  if config is None:
    return Hints(notes=(
        f'ignored {file}: it is neither of timm nor of Hugging Face',))
  if found.family.name not in config.families:
    raise ValueError(
        f'it says {config.what}, but the arrays are those of a '
        f'{found.family.label}.')
  different = contradictions(
      config.claims,
      {**told, 'embedded': _embedded(told, config.embedded)}, given,
      config.spelled)
  if different:
    raise ValueError(
        'it contradicts the arrays:\n'
        + load_report.indented(different))
  _check_ours(file, config, told, given)
  preprocess = dict(config.preprocess)
  if not told['num_classes']:
    preprocess.pop('labels', None)
  processor = file.with_name('preprocessor_config.json')
  if processor.is_file():
    preprocess |= _of_processor(processor, given)
  return Hints(
      section=config.settings, preprocess=preprocess, source=str(file),
      embedded=config.embedded,
      resolution=config.claims.get('resolution'), shown=config.settings)


def _check_ours(
    file: pathlib.Path, config: claims_lib.Config, told: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:
  refused = config.refused(given)
  if told.get('representation_layer') and config.pooler != 'tanh':
    refused.append(
        f'pooler_act is {config.pooler!r}, but ours is tanh, and the weights '
        'have the pooler and no head that does without.')
  if refused:
    raise _NotOursError(
        f'{file} is of a model that is not ours, or does not say enough of '
        'it:\n' + load_report.indented(refused))


def _of_processor(
    file: pathlib.Path, given: Mapping[str, Any],
) -> dict[str, Any]:
  try:
    said = preprocessing_lib.from_huggingface(
        config_json.read_json(file), skip=given)
    preprocessing_lib.parse({'resolution': (1, 1), **said})
  # A text where a list was to be, and the like.
  except (ValueError, TypeError, KeyError, AttributeError,
          ZeroDivisionError) as error:
    raise ValueError(f'{file.name} is not understood: {error}') from error
  return said


# -------------------------------------------------------------------- agreement


def contradictions(
    claims: Mapping[str, Any], told: Mapping[str, Any],
    given: Mapping[str, Any], spelled: Mapping[str, str] | None = None,
) -> list[str]:
  """Returns a line for each claim that arrays deny.

  Args:
    claims: keys of the section `model`, `resolution` and `features`; what the
      arrays do not tell is passed over.
    told: what the arrays tell.
    given: what is not asked about.
    spelled: what the claims are called where they are made.
  """
  if claims.get('name', told['name']) != told['name']:
    return [f'name: expected {claims["name"]!r}, found {told["name"]!r}']
  called = {name: name for name in claims} | dict(spelled or {})
  return [f'{called[name]}: expected {claimed!r}, found {found}'
          for name, claimed in claims.items() if name not in given
          and (found := _denied(name, claimed, told)) is not None]


def _denied(name: str, claimed: Any, told: Mapping[str, Any]) -> str | None:
  """Returns what was found instead; None if nothing speaks against it."""
  if name == 'resolution':
    if not told.get('positions') or infer_architecture.fits(told, claimed):
      return None
    return f'{told["positions"]} position embeddings'
  if name == 'pooling':
    if claimed == 'cls' and not told.get('cls', True):
      return 'no class token'
    needs = claimed == 'attention'
    if needs == told.get('probe', needs):
      return None
    return 'no learned query' if needs else 'a learned query that pools'
  if name not in told:
    return None
  if name == 'backbone':
    return _denied_backbone(claimed, told)
  if name == 'layer_scale':
    same = (claimed is None) == (told[name] is None)
    return None if same else ('none' if told[name] is None else 'learned ones')
  if name == 'position':
    same = (claimed == 'learned') == (told[name] == 'learned')
  elif name == 'cls':
    same = claimed is None or claimed == told[name]
  else:
    same = _plain(claimed) == _plain(told[name])
  return None if same else repr(told[name])


def _denied_backbone(claimed: Any, told: Mapping[str, Any]) -> str | None:
  have = told['backbone']
  if (claimed is None) != (have is None):
    return repr(have)
  if claimed and any(_plain(claimed[key]) != _plain(have[key])
                     for key in have if key in claimed):
    return repr(have)
  return None


def _plain(value: Any) -> Any:
  if isinstance(value, (list, tuple)):
    sides = tuple(value)
    return sides[0] if len(sides) == 2 and sides[0] == sides[1] else sides
  return value
