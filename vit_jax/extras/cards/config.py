"""Section `card` of a config."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class CardConfig:
  """Section `card`: facts for the model card that a run cannot determine.

  Attributes:
    licence: Hugging Face identifier of the weights' licence, such as
      'apache-2.0'; 'other' if `limits` or `intended_use` explains it.
    intended_use: purpose of the model.
    limits: unsuitable uses and known failures.
  """
  licence: str = 'not stated'
  intended_use: str = 'not stated'
  limits: str = 'not stated'
