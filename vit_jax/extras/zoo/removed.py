"""Models and settings that ended, since they cost more than their users.

Each is refused by name in one sentence, wherever it is recognised.
"""

from collections.abc import Iterable
import dataclasses
import re

from vit_jax.exceptions import UserError

LAST = '99de6534'  # The last commit that has all of them.


@dataclasses.dataclass(frozen=True)
class Removed:
  """A model, or a setting, that ended.

  Attributes:
    title: object of the sentence.
    names: regular expression of architectures of timm, model types of Hugging
      Face, variants, config keys, image operations and flags.
    arrays: that of the names of arrays that no other model has; '' for none.
  """
  title: str
  names: str = ''
  arrays: str = ''


REMOVED = (
    Removed(
        'V-JEPA 2 as a model of images', r'vjepa2.*|model\.rotary\.video',
        r'(vjepa2\.)?encoder\.embeddings\.patch_embeddings\.proj\.weight'),
    Removed(
        'Qwen3-ViT and DeepSeek-ViT, with or without their patch merger',
        r'(qwen3|deepseek)_vit_.*'
        r'|model\.(merge(_mlp_dim|_dim)?|mlp_bias|pool_norm_affine)',
        r'(encoder\.)?(merger|aligner)\.fc1\.weight'),
    Removed(
        "MLCD's rotated class token", r'mlcd_vision_model|model\.rotary\.cls',
        r'(vision_model\.)?class_pos_emb'),
    Removed(
        "Scenic's .npz files of TIPS (TIPSv2 of others loads)",
        arrays=r'(.*/)?ToTokenSequence_0/embedding/kernel'),
    Removed(
        "evaluation at each image's own grid (NaFlex weights load at a fixed "
        'one)', 'resize_to_patches'))


def sentence(name: str) -> str:
  """Returns why a name is refused, or '' for others."""
  return next((_refusal(name, one) for one in REMOVED
               if one.names and re.fullmatch(one.names, name)), '')


def check_name(name: str) -> None:
  """Raises a UserError if a name is that of a model that ended."""
  if refusal := sentence(name):
    raise UserError(refusal)


def check_arrays(names: Iterable[str], *, path: str) -> None:
  """Raises a UserError if a file holds a model that ended."""
  for name in names:
    for one in REMOVED:
      if one.arrays and re.fullmatch(one.arrays, name):
        raise UserError(f'{path}: {_refusal(name, one)}')


def _refusal(name: str, removed: Removed) -> str:
  return (f'{name}: this version does not support {removed.title}; the last '
          f'commit that does is {LAST}.')
