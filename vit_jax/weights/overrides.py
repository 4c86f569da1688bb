"""What the caller says of weights: wins, and so it is checked first."""

from collections.abc import Mapping
import dataclasses
import math
import typing
from typing import Any

from vit_jax import schema
from vit_jax.models import resnet_config
from vit_jax.models import variants
from vit_jax.models import vit_config
from vit_jax.weights.configs import preprocessing as preprocessing_lib

_MODEL: Mapping[str, Any] = {
    **typing.get_type_hints(resnet_config.ResNetConfig),
    **typing.get_type_hints(vit_config.ViTConfig)}
NAMES = (*_MODEL, *preprocessing_lib.NAMES, 'prefix')


@dataclasses.dataclass(frozen=True)
class Given:
  """Overrides, each of its type.

  Attributes:
    model: keys of the section `model`.
    claims: the same, with what a variant says.
    preprocess: keys of `Preprocess`.
    prefix: of the names of the parameters, in a file that has two copies.
  """
  model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  claims: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  prefix: str | None = None

  def items(self) -> dict[str, Any]:
    """Returns all of them, as they are shown."""
    said = {**self.model, **self.preprocess}
    return said if self.prefix is None else {**said, 'prefix': self.prefix}


def parse(overrides: Mapping[str, Any]) -> Given:
  """Returns overrides of `formats.read`, checked among themselves.

  Raises:
    ValueError: for a name that is unknown, a value that cannot be, or two that
      contradict each other.
  """
  for name in overrides:
    schema.check_name(name, NAMES, what='override')
  preprocess = _preprocess({name: value for name, value in overrides.items()
                            if name in preprocessing_lib.NAMES})
  model = {name: _of_model(name, value) for name, value in overrides.items()
           if name in _MODEL}
  prefix = overrides.get('prefix')
  if prefix is not None and not isinstance(prefix, str):
    raise ValueError(f'prefix must be text, but is {prefix!r}.')
  return Given(model=model, claims=_claims(model), preprocess=preprocess,
               prefix=prefix)


def _of_model(name: str, value: Any) -> Any:
  if name == 'backbone' and isinstance(value, Mapping):
    # A part of it may be said; the rest is in the arrays.
    schema.parse(resnet_config.BackboneConfig, {'depths': (), **value},
                  where=name)
    return dict(value)
  value = schema.convert(value, _MODEL[name], where=name)
  if name == 'backbone':
    return schema.to_plain(value)
  check_positive(name, value, name)
  return value


def check_positive(name: str, value: Any, called: str) -> None:
  """Raises if a key of the section `model` has to be positive, and is not.

  Raises:
    ValueError: with what the key is called where it was said.
  """
  if name == 'layer_norm_epsilon' and not 0 < value < math.inf:
    raise ValueError(f'{called} must be positive, but is {value}.')
  if name in vit_config.DIMENSIONS and min(
      value if isinstance(value, tuple) else (value,)) < 1:
    raise ValueError(f'{called} must be positive, but is {value}.')


def _claims(model: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what is given, with what a given variant says.

  Raises:
    ValueError: if the two say different things.
  """
  variant = model.get('variant')
  if not variant:
    return dict(model)
  claims = of_variant(variant)
  both = [f'{name}={model[name]!r} (its own is {claims[name]!r})'
          for name in claims if name in model and name != 'backbone'
          and model[name] != claims[name]]
  if both:
    raise ValueError(
        f'variant={variant!r} contradicts {", ".join(both)}. Give one or the '
        'other.')
  return {**claims, **model}


def of_variant(variant: str) -> dict[str, Any]:
  """Returns the keys of the section `model` that a variant decides."""
  backbone = variants.backbone(variant)
  claims: dict[str, Any] = {
      'name': variants.family(variant),
      'backbone': {k: backbone[k] for k in ('depths', 'width')
                   if k in backbone} or None}
  if claims['name'] == 'vit':
    size, patch = variants.parse_variant(variant)
    claims |= {**dataclasses.asdict(size), 'patch': patch}
  return claims


def _preprocess(given: Mapping[str, Any]) -> dict[str, Any]:
  result = dict(given)
  if 'resolution' in given:
    result['resolution'] = _resolution(given['resolution'])
  for name in ('mean', 'std'):
    if name in given:
      result[name] = _three(name, given[name], given.get('channels', 3))
  # The resolution may be left to the weights; it stands in for that here.
  preprocessing_lib.parse({'resolution': (1, 1), **result})
  return result


def _resolution(value: Any) -> tuple[int, int]:
  if isinstance(value, schema.FlagText):
    value = schema.convert(value, Any, where='resolution')
  sides = (value, value) if isinstance(value, int) else value
  if (not isinstance(sides, (tuple, list)) or len(sides) != 2
      or not all(isinstance(s, int) and not isinstance(s, bool) and s > 0
                 for s in sides)):
    raise ValueError(
        'resolution must be a number of pixels, or (height, width), but is '
        f'{value!r}.')
  return sides[0], sides[1]


def _three(name: str, value: Any, channels: int) -> tuple[float, ...]:
  if isinstance(value, schema.FlagText):
    value = schema.convert(value, Any, where=name)
  values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
  if len(values) not in (1, channels):
    raise ValueError(
        f'{name} must be one number, or '
        + ('three, of red, green and blue' if channels == 3 else
           f'{channels}, one for each channel') + f', but is {value!r}.')
  numbers = tuple(schema.convert(v, float, where=name) for v in values)
  return numbers if len(numbers) == channels else numbers * channels
