"""Families of weights: their name tables and settings.

A new family needs a table, in `names` or beside it, and a row in FAMILIES.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from vit_jax.data import preprocessing
from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import names_huggingface
from vit_jax.extras.zoo.families import names_timm
from vit_jax.models import positions as positions_lib
from vit_jax.weights.formats import layout
from vit_jax.weights.formats import published_names


@dataclasses.dataclass(frozen=True)
class Family:
  """Weights of one origin.

  Attributes:
    name: key in `FAMILIES`.
    label: name in messages.
    table: names of its arrays for our parameters.
    prefix: prefix of every parameter name in files that we write.
    settings: keys of the section `model` that names and shapes do not
      determine.
    backbone: such keys of the section `model.backbone`.
    positions: interpolation of position embeddings in the original code.
    positions_by: that of other models of the family, by regular expressions of
      an array's name that only they have, and no other family.
    preprocess: keys of `Preprocess`, unless a file declares them.
    num_heads: number of heads by width, where it differs from published sizes
      and no file declares it.
    not_classified: prefix of parameters that the `classifier` of a model does
      not use; '' for none.
    base: prefix of all names except the classifier's. Models without a
      classifier are written without it.
    grouped: whether layers may have fewer heads of keys and values; each head
      is read once for each of its queries, which computes the same.
    flat: family with the same names, if the kernel of the patches is a matrix.
    ambiguous: whether models that compute differently have the same arrays.
    embeds_registers: whether registers may have position embeddings.
    several_cls: pooling of a model with several class tokens, of which all but
      the first become registers.
    normalizes: whether the model itself normalizes images, after the image
      processor.
    undeclared: that of files without config.json.
    written_as: replacements in the names in files that we write, by regular
      expression.
    other_mlp: parts of the names that a model with an MLP lacks, if the arrays
      of 'gelu' and 'swiglu' have other names.
  """
  name: str
  label: str
  table: layout.Table
  prefix: str = ''
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  backbone: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  positions: positions_lib.Interpolation = 'linear'
  positions_by: Mapping[str, positions_lib.Interpolation] = dataclasses.field(
      default_factory=dict)
  preprocess: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  num_heads: Mapping[int, int] = dataclasses.field(default_factory=dict)
  not_classified: str = ''
  base: str = ''
  grouped: bool = False
  flat: str = ''
  ambiguous: bool = False
  embeds_registers: bool = False
  several_cls: str = 'cls'
  normalizes: bool = False
  undeclared: str = ''
  written_as: Mapping[str, str] = dataclasses.field(default_factory=dict)
  other_mlp: Mapping[str, tuple[str, ...]] = dataclasses.field(
      default_factory=dict)

  def written(self, config: Any) -> 'Family':
    """Returns the family with the names of a model's MLP alone."""
    absent = self.other_mlp.get(getattr(config, 'mlp', ''), ())
    return dataclasses.replace(self, table=self.table.without(*absent))


_LAYERS = 'encoder/layers'
_MLP = f'{_LAYERS}/mlp'
_QKV = f'{_LAYERS}/attention/qkv_'
_OUT = f'{_LAYERS}/attention/out/'
_LAMBDAS = f'{_LAYERS}/attention/difference/lambdas'
_BIT_BACKBONE = {'preactivation': True, 'group_norm_epsilon': 1e-5,
                 'std_epsilon': 0.0}
_IMAGENET = {'mean': preprocessing.IMAGENET_MEAN,
             'std': preprocessing.IMAGENET_STD}
_HALF = {'mean': preprocessing.HALF, 'std': preprocessing.HALF}
_CLIP = {'mean': preprocessing.CLIP_MEAN, 'std': preprocessing.CLIP_STD}
_TANH = {'gelu': 'tanh', 'layer_norm_epsilon': 1e-6}
_EXACT = {'gelu': 'exact', 'layer_norm_epsilon': 1e-6}
_EXACT_12 = {'gelu': 'exact', 'layer_norm_epsilon': 1e-12}
_RESNET = {'name': 'resnet'}
_DINOV3 = {'position': 'none', 'rotary': {
    'coordinates': 'normalized', 'base': 100.0, 'halves': True}}
_DINOV2_MLP = {'gelu': ('.weights_',), 'swiglu': ('.mlp.fc',)}


FAMILIES: Mapping[str, Family] = {family.name: family for family in (
    *(Family(**vars(family)) for family in published_names.FAMILIES),
    Family(
        'timm', 'timm ViT', names_timm.TIMM, settings=_EXACT,
        backbone={'group_norm_epsilon': 1e-5, 'std_epsilon': 0.0,
                  'variance_epsilon': 1e-8},
        positions='cubic', ambiguous=True, embeds_registers=True, undeclared=(
            "no config.json: read as timm's. Backbones of DINO, iBOT, MAE and "
            "I-JEPA have the same names, but ImageNet's mean and std, and "
            'other positions at another size (docs/models.md)')),
    Family(
        'naflex', 'timm NaFlex ViT', names_timm.NAFLEX, settings=_EXACT,
        positions='cubic'),
    Family(
        'radio', 'C-RADIO', names_timm.RADIO, prefix='radio_model.model.',
        settings={**_EXACT, 'final_norm': False, 'position_cls': False},
        positions='bilinear_sharp_square', preprocess=_CLIP,
        num_heads={1152: 16, 1536: 24}, normalizes=True),
    Family(
        'meta', 'self-supervised ViT', names_timm.META, settings=_EXACT,
        # DINO, iBOT and DINOv2; then TIPS, DINOv2 with registers, MAE, and
        # I-JEPA and MSN.
        positions='bicubic_offset', positions_by={
            r'vision_encoder\.mask_token': 'bilinear',
            r'(.*\.)?blocks\.\d+\.mlp\.c_fc\.weight': 'bilinear',
            r'(.*\.)?register_tokens': 'cubic',
            r'(.*\.)?decoder_pos_embed': 'bicubic',
            r'target_encoder\..*': 'bicubic'},
        preprocess=_IMAGENET, num_heads={1536: 24}, ambiguous=True, other_mlp={
            'gelu': ('.w12.', '.w3.'), 'swiglu': ('.c_',)}),
    Family(
        'timm_parallel', 'timm ViT with parallel layers', names_timm.PARALLEL,
        settings={**_EXACT, 'parallel': True}, positions='cubic'),
    Family(
        'timm_paired', 'timm ViT with pairs of layers', names_timm.PAIRED,
        settings=_EXACT, positions='cubic'),
    Family(
        'sapiens2', 'Sapiens2', names_timm.SAPIENS2,
        settings={**_EXACT, **_DINOV3, 'layer_scale_mlp': False},
        preprocess=_IMAGENET, num_heads={1536: 24, 2432: 32}, grouped=True),
    Family(
        'vit5', 'ViT-5', names_timm.VIT5,
        settings={**_EXACT, 'rotary': {'register_base': 100.0}},
        positions='bicubic', preprocess=_IMAGENET, num_heads={1152: 16}),
    Family(
        'timm_bit', 'timm BiT', names_timm.TIMM_BIT, settings=_RESNET,
        backbone={**_BIT_BACKBONE, 'variance_epsilon': 1e-8}),
    Family(
        'huggingface', 'Hugging Face ViT', names_huggingface.HUGGINGFACE,
        settings=_EXACT_12,
        # The classifier reads the class token, not the tanh layer.
        positions='bicubic', not_classified='representation/', base='vit.',
        embeds_registers=True, several_cls='cls_registers'),  # Pixio.
    Family(
        'beit', 'Hugging Face BEiT', names_huggingface.BEIT,
        settings=_EXACT_12, positions='bicubic', base='beit.'),
    Family(
        'dinov2', 'Hugging Face DINOv2', names_huggingface.DINOV2,
        settings=_EXACT, positions='bicubic', preprocess=_IMAGENET,
        base='dinov2.', other_mlp=_DINOV2_MLP),
    Family(
        'dinov2_with_registers', 'Hugging Face DINOv2 with registers',
        names_huggingface.DINOV2_REGISTERS, settings=_EXACT,
        positions='cubic', preprocess=_IMAGENET,
        base='dinov2_with_registers.', other_mlp=_DINOV2_MLP),
    Family(
        'aimv2', 'Hugging Face AIMv2', names_huggingface.AIMV2,
        settings={'layer_norm_epsilon': 1e-5}, positions='bicubic',
        preprocess=_CLIP, base='vision_model.'),
    Family(
        'dinov3', 'Hugging Face DINOv3', names_huggingface.DINOV3,
        settings={**_EXACT, 'layer_norm_epsilon': 1e-5, **_DINOV3},
        preprocess=_IMAGENET),
    Family(
        'siglip', 'Hugging Face SigLIP', names_huggingface.SIGLIP,
        settings=_TANH, positions='bicubic', preprocess=_HALF,
        not_classified='pooling/', flat='siglip2'),
    Family(
        'siglip2', 'Hugging Face SigLIP 2 (NaFlex)', names_huggingface.SIGLIP2,
        settings=_TANH, positions='bilinear', preprocess=_HALF,
        not_classified='pooling/'),
    Family(
        'clip', 'Hugging Face CLIP', names_huggingface.CLIP,
        settings={'layer_norm_epsilon': 1e-5}, positions='bicubic',
        preprocess={**_CLIP, 'activation': 'none'},
        not_classified='final_norm/', ambiguous=True),
    Family(
        'scratch', '"Implementing Vision Transformer from scratch"',
        names.SCRATCH, settings={
            **_TANH, 'layer_norm_epsilon': 1e-5, 'final_norm': False}),
)}


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
    family: Family, params: Mapping[str, Any],
) -> dict[str, Any]:
  """Inverts `split_pairs`, for the arrays that are joint in a family.

  Raises:
    ValueError: if the branches of parallel layers need two layer scales.
  """
  written = {row.ours for row in family.table.rows if not row.read_only}
  result = dict(params)
  if 'registers' in result and 'registers' not in written:
    result['cls'] = np.concatenate([result['cls'], result.pop('registers')])
  parallel = f'{_QKV}kernel' not in written  # timm's parallel layers.
  if parallel and not np.array_equal(
      result.pop(f'{_LAYERS}/mlp_scale', ()),
      result.get(f'{_LAYERS}/attention_scale', ())):
    raise ValueError(
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
