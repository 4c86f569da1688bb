"""Settings that the caller of `vit_jax.load` gives; they override all others.
"""

from collections.abc import Mapping
import dataclasses
import functools
import typing
from typing import Any, ClassVar, Literal

from vit_jax import registry
from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.weights import weights as weights_lib


@functools.cache
def _fields() -> Mapping[str, Any]:
  """Returns the types of the keys of section `model`, of any model."""
  hints: dict[str, Any] = {}
  for name in registry.available(registry.MODELS):  # The most general last.
    hints |= {key: hint for key, hint in typing.get_type_hints(
        factory.record(name)).items()
              if typing.get_origin(hint) is not ClassVar}
  # 'auto' is for training.
  return {**hints, 'dtype': Literal['float32', 'bfloat16']}


@dataclasses.dataclass(frozen=True)
class Overrides:
  """Parsed overrides.

  Attributes:
    model: keys of the section `model`.
    preprocess: arguments of `preprocessing.override`.
    prefix: prefix of parameter names, for a file with several copies of a
      model.
  """
  model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  prefix: str | None = None

  def change(
      self, stored: model_config.ModelConfig) -> model_config.ModelConfig:
    """Returns a declared model with settings that no array determines.

    Raises:
      UserError: if it would be another model.
    """
    given = self.model
    if fixed := {'name', 'variant', 'backbone'} & given.keys():
      raise UserError(
          f'{", ".join(sorted(fixed))}: the weights declare their model. Leave '
          'it out.')
    if stored.has_tokens and 'pooling' in given:
      # Pooling does not change the class token.
      given = {'cls': stored.has_cls, **given}
    return factory.parse({**schema.to_plain(stored), **given})

  @property
  def settings(self) -> dict[str, str]:
    """Origins of the settings in `weights.REPORTED` that the caller gives."""
    given = {*self.model, *self.preprocess}
    return {name: weights_lib.GIVEN for name in weights_lib.REPORTED
            if name in given}

  @property
  def notes(self) -> tuple[str, ...]:
    """A line of the summary about the settings of the caller."""
    values = {**self.model, **self.preprocess}
    return (weights_lib.listed(values.items(), start='overrides: '),) * bool(
        values)


def parse(overrides: Mapping[str, Any]) -> Overrides:
  """Checks the names and types of overrides.

  Raises:
    UserError: for an unknown name or an invalid value.
  """
  terms = preprocessing.names()
  known = (*_fields(), *terms, 'prefix')
  for name in overrides:
    schema.check_name(name, known, what='override')
  preprocess = {name: value for name, value in overrides.items()
                if name in terms}
  # The weights may decide the resolution; it is a placeholder here.
  checked = preprocessing.override(preprocessing.Preprocess((1, 1)), preprocess)
  if 'resolution' in preprocess:
    preprocess['resolution'] = checked.resolution
  return Overrides(
      model={name: schema.to_plain(schema.convert(
          value, _fields()[name], where=name))
             for name, value in overrides.items() if name in _fields()},
      preprocess=preprocess, prefix=schema.convert(
          overrides.get('prefix'), str | None, where='prefix'))
