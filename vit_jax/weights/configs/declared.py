"""Settings that a config.json, or our own metadata, declares for weights."""

from collections.abc import Container
import dataclasses
from typing import Any


@dataclasses.dataclass
class Declared:
  """Declared settings; `weights.load` compares them with the arrays.

  Attributes:
    source: file that declares them.
    what: architecture it names, for messages.
    families: names of the weight families it can describe; None is any.
    ours: whether vit_jax wrote it: then it is complete.
    model: keys of the section `model`.
    preprocess: keys of `Preprocess`.
    resolution: image height and width of the position embeddings.
    positions: how position embeddings are resized.
    embeds_prefix: whether class token and registers have position embeddings.
    unsupported: reasons why the weights cannot be loaded, each with the
      override that resolves it ('' if none does).
    notes: lines for the load summary.
  """
  source: str = ''
  what: str = ''
  families: tuple[str, ...] | None = None
  ours: bool = False
  model: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)
  resolution: tuple[int, int] | None = None
  positions: str | None = None
  embeds_prefix: bool | None = None
  unsupported: list[tuple[str, str]] = dataclasses.field(default_factory=list)
  notes: tuple[str, ...] = ()

  def refuse(self, reason: str, *, unless: str = '') -> None:
    """Records an unsupported setting, and the override that resolves it."""
    self.unsupported.append((reason, unless))

  def check_supported(self, overrides: Container[str]) -> None:
    """Raises ValueError unless `overrides` resolve every unsupported setting.
    """
    remaining = [reason for reason, unless in self.unsupported
                 if not unless or unless not in overrides]
    if remaining:
      raise ValueError('\n'.join(
          [f'{self.source} declares a model that cannot be loaded:',
           *(f'  {reason}' for reason in remaining)]))


def sides(value: Any) -> tuple[int, int]:
  """Returns an image size, one number or [height, width], as a pair."""
  height, width = (value, value) if isinstance(value, int) else value
  return int(height), int(width)
