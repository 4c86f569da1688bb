"""Arguments of timm's class NaFlexVit.

Source: NaFlexVitCfg and the architectures in timm 1.0.31, models/naflexvit.py.
"""

from collections.abc import Mapping
import re
from typing import Any

from vit_jax.exceptions import UserError
from vit_jax.models import positions as positions_lib

# Arguments of the interpolation of position embeddings.
INTERPOLATION = (
    'pos_embed_interp_mode', 'pos_embed_antialias', 'pos_embed_align_corners',
    'pos_embed_ar_preserving')
# By architecture: mode, anti-aliasing, aligned corners, and whether the aspect
# ratio is kept.
_IMPLIED: Mapping[str, tuple[Any, ...]] = {
    '.*_par(fac)?_.*': ('bicubic', True, False, True),
    '.*_siglip': ('bilinear', True, False, False),
    '.*_(base|huge)_.*_radio_v3': ('bilinear', False, True, True),
    '.*_radio_.*': ('bilinear', False, False, True),
    '.*': ('bicubic', True, False, False)}
_METHODS: Mapping[tuple[Any, ...], positions_lib.Interpolation] = {
    ('bicubic', True, False): 'cubic', ('bicubic', False, False): 'bicubic',
    ('bilinear', True, False): 'bilinear',
    ('bilinear', False, False): 'bilinear_sharp',
    ('bilinear', False, True): 'linear'}


def positions(name: str, arguments: Mapping[str, Any]) -> Any:
  """Returns the interpolation of the position embeddings of an architecture.

  Raises:
    UserError: if our models lack it.
  """
  implied = next(values for pattern, values in _IMPLIED.items()
                 if re.fullmatch(pattern, name))
  *key, keeps_aspect = (
      arguments.get(key, value) for key, value in zip(INTERPOLATION, implied))
  if arguments.get('pos_embed', 'factorized' * ('_parfac_' in name)) == (
      'factorized'):  # Always linear.
    key = ['bilinear', False, False]
  if tuple(key) not in _METHODS:
    raise UserError(
        f'model_args has {dict(zip(INTERPOLATION, key))}: our models lack that '
        'interpolation of position embeddings.')
  return _METHODS[tuple(key)] + '_square' * keeps_aspect


def arguments(grid: tuple[int, int], method: str) -> dict[str, Any]:
  """Returns the arguments of position embeddings.

  Args:
    grid: their rows and columns.
    method: their interpolation.

  Raises:
    UserError: if timm lacks the interpolation.
  """
  plain = method.removesuffix('_square')
  key = next((key for key, name in _METHODS.items() if name == plain), None)
  if key is None:
    raise UserError(
        f'timm has no NaFlex ViT with positions {method!r}. Set another: '
        "load(..., positions='cubic').")
  return {'pos_embed_grid_size': list(grid),
          **dict(zip(INTERPOLATION, (*key, plain != method)))}
