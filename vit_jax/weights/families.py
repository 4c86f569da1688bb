"""Families of weights: their name table, settings and recognition.

A new family needs a table in `names`, and a row in FAMILIES.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import re
from typing import Any

import numpy as np

from vit_jax.weights import layout
from vit_jax.weights import names


@dataclasses.dataclass(frozen=True)
class Family:
  """Weights of one origin.

  Attributes:
    name: key in `FAMILIES`.
    label: name in messages.
    table: names of its arrays for our parameters.
    prefixes: possible prefixes of every parameter name; the first is written.
    settings: keys of the section `model` that names and shapes do not
      determine.
    backbone: the same for the section `model.backbone`.
    positions: interpolation of position embeddings in the original code.
  """
  name: str
  label: str
  table: layout.Table
  prefixes: tuple[str, ...] = ('',)
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  backbone: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  positions: str = 'linear'


_MLP = 'encoder/layers/mlp'
_BIT_BACKBONE = {'preactivation': True, 'group_norm_epsilon': 1e-5,
                 'std_epsilon': 0.0}

FAMILIES: Mapping[str, Family] = {
    'npz': Family(
        'npz', 'published JAX ViT', names.NPZ,
        prefixes=('', 'params/', 'opt/target/', 'optimizer/target/',
                  'params/img/'),
        settings={'gelu': 'tanh', 'layer_norm_epsilon': 1e-6}),
    'bit': Family(
        'bit', 'published BiT', names.BIT_NPZ,
        prefixes=('resnet/', '', 'params/resnet/', 'params/'),
        settings={'name': 'resnet'},
        # The value in the code of big_transfer.
        backbone={**_BIT_BACKBONE, 'variance_epsilon': 1e-10}),
    'timm': Family(
        'timm', 'timm ViT', names.TIMM, prefixes=('', 'model.'),
        settings={'gelu': 'exact', 'layer_norm_epsilon': 1e-6},
        backbone={'group_norm_epsilon': 1e-5, 'std_epsilon': 0.0,
                  'variance_epsilon': 1e-8},
        positions='cubic'),
    'timm_bit': Family(
        'timm_bit', 'timm BiT', names.TIMM_BIT, settings={'name': 'resnet'},
        backbone={**_BIT_BACKBONE, 'variance_epsilon': 1e-8}),
    'huggingface': Family(
        'huggingface', 'Hugging Face ViT', names.HUGGINGFACE,
        settings={'gelu': 'exact', 'layer_norm_epsilon': 1e-12},
        positions='cubic'),
    'scratch': Family(
        'scratch', '"Implementing Vision Transformer from scratch"',
        names.SCRATCH,
        settings={'gelu': 'tanh', 'layer_norm_epsilon': 1e-5,
                  'final_norm': False}),
}


def recognise(array_names: Sequence[str]) -> tuple[Family, str] | None:
  """Returns the family of a file's names, and their prefix; None if unknown.

  Of several families with the same stem, the one that knows most of the names
  is returned.
  """
  best: tuple[int, Family, str] | None = None
  for family in FAMILIES.values():
    for prefix in family.prefixes:
      inside = without_prefix(prefix, array_names)
      score = sum(layout.has_row(family.table, name) for name in inside)
      if has_stem(family, inside) and (best is None or score > best[0]):
        best = (score, family, prefix)
  return None if best is None else best[1:]


def has_stem(family: Family, array_names: Sequence[str]) -> bool:
  """Whether the names include the first kernel of a ViT or ResNet."""
  return any(layout.contains(family.table, ours, array_names)
             for ours in ('patches/kernel', 'backbone/root/kernel'))


def without_prefix(prefix: str, array_names: Sequence[str]) -> list[str]:
  """Returns the names that begin with a prefix, without it."""
  return [n.removeprefix(prefix) for n in array_names if n.startswith(prefix)]


def split_pairs(params: dict[str, Any]) -> dict[str, Any]:
  """Splits joint arrays: timm's keys and values, and gates before hidden units.
  """
  hidden, out = params.get(f'{_MLP}/hidden/kernel'), params.get(
      f'{_MLP}/out/kernel')
  if hidden is not None and out is not None and (
      hidden.shape[-1] == 2 * out.shape[-2]):
    for end in ('kernel', 'bias'):
      if f'{_MLP}/hidden/{end}' in params:
        params[f'{_MLP}/gate/{end}'], params[f'{_MLP}/hidden/{end}'] = np.split(
            params[f'{_MLP}/hidden/{end}'], 2, axis=-1)
  return {
      target: value
      for name, array in params.items()
      for target, value in (
          [(name.replace('key_value', part), array[i])
           for i, part in enumerate(('key', 'value'))]
          if '/key_value/' in name else [(name, array)])}


def join_gates(params: Mapping[str, Any]) -> dict[str, Any]:
  """Joins gates and hidden units of SwiGLU, which `split_pairs` splits."""
  joined = {
      f'{_MLP}/hidden/{end}': np.concatenate(
          [params[f'{_MLP}/{part}/{end}'] for part in ('gate', 'hidden')],
          axis=-1)
      for end in ('kernel', 'bias') if f'{_MLP}/gate/{end}' in params}
  return {name: array for name, array in {**params, **joined}.items()
          if not name.startswith(f'{_MLP}/gate/')}


def join_pairs(params: Mapping[str, Any]) -> dict[str, Any]:
  """Inverts `split_pairs`."""
  return {
      re.sub('/key/', '/key_value/', name): (
          np.stack([array, params[name.replace('/key/', '/value/')]])
          if '/key/' in name else array)
      for name, array in params.items() if '/value/' not in name}
