"""Arrays that a codebase joins and our models hold apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vit_jax.exceptions import UserError
from vit_jax.extras.zoo.families import records

_LAYERS = 'encoder/layers'
_MLP = f'{_LAYERS}/mlp'
_QKV = f'{_LAYERS}/attention/qkv_'
_OUT = f'{_LAYERS}/attention/out/'
_LAMBDAS = f'{_LAYERS}/attention/difference/lambdas'


def split_pairs(params: dict[str, Any], heads: int) -> dict[str, Any]:
  """Splits joint arrays: (queries,) keys and values of attention pooling,
  gates before hidden units, hidden units before queries, keys and values, the
  output projections of attention and MLP, and several class tokens, of which
  all but the first become registers.
  """
  if len(params.get('cls', ())) > 1:  # Pixio and C-RADIO.
    params['cls'], params['registers'] = np.split(params['cls'], [1])
  hidden, out = params.get(f'{_MLP}/hidden/kernel'), params.get(
      f'{_MLP}/out/kernel')
  if out is not None and _LAMBDAS in params and f'{_OUT}kernel' not in params:
    width = out.shape[-1]
    params[f'{_OUT}kernel'], out = np.split(out, [width], axis=1)
    params[f'{_OUT}kernel'] = params[f'{_OUT}kernel'].reshape(
        len(out), heads, -1, width)
    params[f'{_MLP}/out/kernel'] = out
    if f'{_MLP}/out/bias' in params:
      params[f'{_OUT}bias'] = params.pop(f'{_MLP}/out/bias')
  if hidden is not None and out is not None and f'{_QKV}kernel' not in params:
    for end in ('kernel', 'bias'):
      joint = params.get(f'{_MLP}/hidden/{end}')
      if joint is not None and joint.shape[-1] > out.shape[-2]:
        params[f'{_MLP}/hidden/{end}'], qkv = np.split(
            joint, [out.shape[-2]], axis=-1)
        params[_QKV + end] = qkv.reshape(*qkv.shape[:-1], 3, heads, -1)
    if f'{_LAYERS}/attention_scale' in params:
      params[f'{_LAYERS}/mlp_scale'] = params[f'{_LAYERS}/attention_scale']
  elif hidden is not None and out is not None and (
      hidden.shape[-1] == 2 * out.shape[-2]):
    for end in ('kernel', 'bias'):
      if f'{_MLP}/hidden/{end}' in params:
        params[f'{_MLP}/gate/{end}'], params[f'{_MLP}/hidden/{end}'] = np.split(
            params[f'{_MLP}/hidden/{end}'], 2, axis=-1)
  return {
      target: value
      for name, array in params.items()
      for target, value in (
          [(f'pooling/{part}/{name.split("/")[-1]}', array[i])
           for i, part in enumerate(name.split('/')[1].split('_'))]
          if 'key_value/' in name else [(name, array)])}


def join_pairs(
    family: records.Family, params: Mapping[str, Any],
) -> dict[str, Any]:
  """Inverts `split_pairs`, for the arrays that are joint in a family.

  Raises:
    UserError: if the branches of parallel layers need two layer scales.
  """
  written = {row.ours for row in family.table.rows if not row.read_only}
  result = dict(params)
  if 'registers' in result and 'registers' not in written:
    result['cls'] = np.concatenate([result['cls'], result.pop('registers')])
  parallel = f'{_QKV}kernel' not in written  # timm's parallel layers.
  if parallel and not np.array_equal(
      result.pop(f'{_LAYERS}/mlp_scale', ()),
      result.get(f'{_LAYERS}/attention_scale', ())):
    raise UserError(
        "timm's parallel layers have one layer scale, but attention_scale and "
        'mlp_scale differ. Save the model as orbax.')
  if parallel and _LAMBDAS in result:
    kernel, out = result.pop(f'{_OUT}kernel'), f'{_MLP}/out/'
    result[f'{out}kernel'] = np.concatenate([
        kernel.reshape(len(kernel), -1, kernel.shape[-1]),
        result[f'{out}kernel']], axis=1)
    if f'{_OUT}bias' in result:
      result[f'{out}bias'] = result.pop(f'{_OUT}bias')
  for end in ('kernel', 'bias'):
    if parallel and _QKV + end in result:
      qkv = result.pop(_QKV + end)
      result[f'{_MLP}/hidden/{end}'] = np.concatenate([
          result[f'{_MLP}/hidden/{end}'], qkv.reshape(*qkv.shape[:-3], -1)],
                                                      axis=-1)
    gate, hidden = f'{_MLP}/gate/{end}', f'{_MLP}/hidden/{end}'
    if gate in result and gate not in written:
      result[hidden] = np.concatenate(
          [result.pop(gate), result[hidden]], axis=-1)
    for joint in ('query_key_value', 'key_value'):
      if f'pooling/{joint}/{end}' in written and f'pooling/key/{end}' in result:
        result[f'pooling/{joint}/{end}'] = np.stack([
            result.pop(f'pooling/{part}/{end}') for part in joint.split('_')])
  return result
