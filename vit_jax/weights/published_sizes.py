"""Published variant of a model with inferred dimensions."""

from collections.abc import Mapping
from typing import Any

from vit_jax.models import model_config
from vit_jax.models import resnet_config
from vit_jax.models import variants


def variant(config: model_config.ModelConfig) -> str:
  """Returns the published variant of a model's dimensions; '' if none."""
  patch = getattr(config, 'patch', 0)
  names = (*variants.PUBLISHED, *(f'{size}/{patch}' for size in variants.SIZES
                                  if isinstance(patch, int) and patch))
  return next((name for name in names if _has(
      config, variants.section(name))), '')


def _has(config: Any, section: Mapping[str, Any]) -> bool:
  """Whether a record has the values of a section."""
  expected = dict(section)
  stem, own = expected.pop('backbone', None), getattr(config, 'backbone', None)
  if stem and own:
    stem = {'width': resnet_config.StemConfig.width, **stem}
    expected['backbone'] = own if _has(own, stem) else None
  else:
    expected['backbone'] = stem
  return all(getattr(config, key, None) == value
             for key, value in expected.items())
