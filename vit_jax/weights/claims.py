"""What a config.json says of a model, taken apart by who can deny it."""

from collections.abc import Container
import dataclasses
import typing
from typing import Any

from vit_jax import schema
from vit_jax.models import vit_config
from vit_jax.weights import overrides


@dataclasses.dataclass
class Config:
  """What a config.json says.

  Attributes:
    families: names of those that it can be of.
    what: what it says it is of, for messages.
    claims: keys of the section `model`, `resolution` and `features`, which the
      arrays tell as well.
    spelled: what the file calls some of them.
    settings: keys of the section `model` that arrays do not tell.
    preprocess: keys of `Preprocess`.
    embedded: whether class token and registers have positions, if it says so.
    pooler: the activation of the representation layer.
    refusals: what our models do not do, or nobody can tell from it; each with
      the override that settles it, '' if none can.
  """
  families: tuple[str, ...]
  what: str
  claims: dict[str, Any] = dataclasses.field(default_factory=dict)
  spelled: dict[str, str] = dataclasses.field(default_factory=dict)
  settings: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)
  embedded: bool | None = None
  pooler: str = 'tanh'
  refusals: list[tuple[str, str]] = dataclasses.field(default_factory=list)

  def claim(self, name: str, theirs: str, value: Any) -> None:
    """Notes what the file says of a key, under its own name of it."""
    self.claims[name] = typed(name, value, theirs)
    self.spelled[name] = theirs

  def refuse(self, text: str, *, unless: str = '') -> None:
    """Notes what keeps the model from being ours, unless an override is."""
    self.refusals.append((unless, text))

  def refused(self, given: Container[str]) -> list[str]:
    """Returns what overrides do not settle."""
    return [text for unless, text in self.refusals
            if not (unless and unless in given)
            # The number of heads is the variant's.
            and not (unless == 'num_heads' and 'variant' in given)]


def typed(name: str, value: Any, theirs: str) -> Any:
  """Returns a value of a key as its type.

  Raises:
    ValueError: if it is of none that could be it, with its name in the file.
  """
  if name == 'resolution':
    sides = (value, value) if isinstance(value, int) else value
    return schema.convert(sides, tuple[int, int], where=theirs)
  hint = {'features': int, 'cls': bool}.get(
      name, typing.get_type_hints(vit_config.ViTConfig).get(name, Any))
  value = schema.convert(value, hint, where=theirs)
  overrides.check_positive(name, value, theirs)
  return value
