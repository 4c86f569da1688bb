"""Our models in the formats of other codebases, whole or not at all."""

from collections.abc import Callable, Mapping
import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any, Literal

import numpy as np

from vit_jax import models
from vit_jax import records
from vit_jax import tree
from vit_jax.interop import layout
from vit_jax.interop import names as names_lib
from vit_jax.interop import npz
from vit_jax.interop import preprocess as preprocess_lib
from vit_jax.interop import safetensors

Format = Literal['npz', 'timm', 'huggingface']
FORMATS: tuple[Format, ...] = ('npz', 'timm', 'huggingface')

# What each format's own library computes, whatever parameters there are. A
# model that computes otherwise would give other logits there.
_PLAIN = {'axial': False, 'position_at': 'stem'}
_FIXED: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    'npz': {**{k: (v,) for k, v in _PLAIN.items()},
            'position': ('learned', 'none'), 'registers': (0,)},
    'timm': {**{k: (v,) for k, v in _PLAIN.items()},
             'position': ('learned', 'none')},
    'huggingface': {**{k: (v,) for k, v in _PLAIN.items()},
                    'position': ('learned',), 'position_cls': (True,),
                    'pooling': ('cls',), 'final_norm': (True,)}}

_TIMM_SIZES = {'Ti': 'tiny', 'S': 'small', 'B': 'base', 'L': 'large',
               'H': 'huge', 'g': 'giant', 'G': 'gigantic'}
_TIMM_HYBRIDS = {
    'R+Ti/16': 'vit_tiny_r_s16_p8_224', 'R26+S/32': 'vit_small_r26_s32_224',
    'R26+B/32': 'vit_base_r26_s32_224', 'R50+B/16': 'vit_base_r50_s16_224',
    'R50+L/32': 'vit_large_r50_s32_224'}


def write(
    target: str | os.PathLike,
    form: Format,
    config: models.ModelConfig,
    params: Any,
    *,
    resolution: tuple[int, int],
    preprocess: preprocess_lib.Preprocess,
) -> list[str]:
  """Writes a model for another library.

  Args:
    target: of npz, a file; of timm, a .safetensors file or a folder with a
      config.json; of huggingface, a folder. It must not exist.
    form: what to write.
    config: of the model.
    params: nested dict of arrays.
    resolution: height and width that the positions are for.
    preprocess: written where the format has a place for it.

  Returns:
    Lines on what the format cannot say.

  Raises:
    FileExistsError: if there is something at `target`.
    ValueError: if the format has no place for a part of the model.
  """
  family = _family(form, config)
  plain = records.to_plain(config)
  for name, allowed in _FIXED[form].items():
    if name in plain and plain[name] not in allowed:
      raise ValueError(
          f'The format {form} has no way to say {name}={plain[name]!r}: its '
          f'models have {" or ".join(map(repr, allowed))}.')
  if form == 'huggingface' and config.num_classes and (
      plain['representation_layer']):
    raise ValueError(
        'The classifier of Hugging Face has no layer before its head, so '
        'representation_layer=True cannot be written with one. Write npz.')
  flat = tree.flatten(params)
  if form == 'timm' and _has_prefix_positions(plain):
    flat = _with_register_positions(flat)
  arrays = to_arrays(family, flat)
  notes = _notes(form, family, plain)
  target = pathlib.Path(target)
  if form == 'npz':
    _write_whole(target, lambda path: npz.write(path, arrays))
  elif form == 'timm' and target.suffix == '.safetensors':
    _write_whole(target, lambda path: safetensors.write(path, arrays))
  elif form == 'timm':
    side = _timm_config(plain, resolution, preprocess)
    _write_whole(target, lambda path: _write_folder(
        path, arrays, {'config.json': side}))
  else:
    if config.num_classes == 0:
      arrays = {name.removeprefix('vit.'): a for name, a in arrays.items()}
    _write_whole(target, lambda path: _write_folder(path, arrays, {
        'config.json': _huggingface_config(plain, resolution, preprocess),
        'preprocessor_config.json': preprocess_lib.to_huggingface(
            preprocess)}))
  return notes


def to_arrays(
    family: names_lib.Family, params: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Returns parameters by our names as a family's arrays, by theirs.

  Raises:
    ValueError: if the family has no place for one.
  """
  flat = {name: np.asarray(array, np.float32)
          for name, array in params.items() if array.size}
  if family.name == 'timm':
    flat = names_lib.join_pairs(flat, np.stack)
  arrays: dict[str, np.ndarray] = {}
  problems = []
  for name, array in flat.items():
    try:
      arrays |= layout.to_theirs(family.table, name, array)
    except ValueError as error:
      problems.append(str(error))
  if problems:
    raise ValueError('\n'.join(problems))
  if family.name == 'timm' and 'backbone/block1/unit1/conv1/kernel' not in flat:
    # The root alone is called otherwise than the root of a network.
    arrays = {n.replace('backbone.stem.', 'backbone.'): a
              for n, a in arrays.items()}
  return {family.prefixes[0] + name: np.ascontiguousarray(array)
          for name, array in sorted(arrays.items())}


def _family(form: str, config: models.ModelConfig) -> names_lib.Family:
  name = {('npz', 'resnet'): 'bit', ('timm', 'resnet'): 'timm_bit'}.get(
      (form, config.name), form)
  if (form, config.name) == ('huggingface', 'resnet') or (
      form == 'huggingface' and config.backbone is not None):
    raise ValueError(
        'The Hugging Face ViT has no convolutional network, so this model '
        'cannot be one. Use --format=timm or --format=npz.')
  return names_lib.FAMILIES[name]


def _notes(
    form: str, family: names_lib.Family, plain: Mapping[str, Any],
) -> list[str]:
  """Returns what a reader of the file must be told, for it does not say so."""
  settings = dict(family.settings)
  settings.pop('name', None)
  if form == 'huggingface':
    settings = {}
  if form == 'timm':
    settings.pop('gelu', None)
  notes = [
      f'{form} computes with {name}={value!r}, this model with '
      f'{plain[name]!r}: to read the file back, say so'
      for name, value in settings.items() if plain.get(name) != value]
  backbone = plain.get('backbone')
  if backbone:
    notes += [
        f'{form} computes with backbone.{name}={value!r}, this model with '
        f'{backbone[name]!r}'
        for name, value in family.backbone.items() if backbone[name] != value]
  return notes


def _timm_config(
    plain: Mapping[str, Any], resolution: tuple[int, int],
    preprocess: preprocess_lib.Preprocess,
) -> dict[str, Any]:
  side: dict[str, Any] = {
      'num_classes': plain['num_classes'],
      'pretrained_cfg': {**preprocess_lib.to_timm(preprocess),
                         'num_classes': plain['num_classes']}}
  if preprocess.labels:
    side['label_names'] = list(preprocess.labels)
  variant = plain['variant']
  if plain['name'] == 'resnet':
    name = variant.lower().replace('r', '', 1)
    return {'architecture': f'resnetv2_{name}_bit', **side}
  pool = {'cls': 'token', 'average': 'avg', 'attention': 'map'}[
      plain['pooling']]
  arguments: dict[str, Any] = {
      'img_size': list(resolution), 'class_token': _has_cls(plain),
      'global_pool': pool,
      'qkv_bias': plain['qkv_bias'], 'reg_tokens': plain['registers'],
      'no_embed_class': not _has_prefix_positions(plain),
      'fc_norm': plain['pool_norm'],
      'final_norm': plain['final_norm'] or plain['pool_norm'],
      'act_layer': {'exact': 'gelu', 'tanh': 'gelu_tanh'}[plain['gelu']]}
  if plain['position'] == 'none':
    arguments['pos_embed'] = 'none'
  if plain['layer_scale'] is not None:
    arguments['init_values'] = plain['layer_scale']
  if plain['backbone']:
    if variant not in _TIMM_HYBRIDS:
      raise ValueError(
          f'timm has no architecture for {variant or "this hybrid"} that a '
          'config.json could name. Write the weights alone: '
          '--target=FILE.safetensors.')
    return {'architecture': _TIMM_HYBRIDS[variant], 'global_pool': pool,
            'model_args': arguments, **side}
  patch = plain['patch']
  arguments |= {
      'patch_size': patch, 'embed_dim': plain['width'],
      'depth': plain['depth'], 'num_heads': plain['num_heads'],
      'mlp_ratio': plain['mlp_dim'] / plain['width']}
  # Any will do: the arguments say all that it says.
  return {'architecture': 'vit_base_patch16_224', 'global_pool': pool,
          'num_features': plain['width'], 'model_args': arguments, **side}


def _has_cls(plain: Mapping[str, Any]) -> bool:
  return plain['pooling'] == 'cls' if plain['cls'] is None else plain['cls']


def _has_prefix_positions(plain: Mapping[str, Any]) -> bool:
  """Whether the class token has a position: timm's registers then have."""
  return (plain['name'] == 'vit' and plain['position_cls'] and _has_cls(plain)
          and plain['position'] == 'learned')


def _with_register_positions(params: Mapping[str, Any]) -> dict[str, Any]:
  """Gives registers positions of zero, where timm wants some."""
  if 'registers' not in params:
    return dict(params)
  cls, patches = np.split(np.asarray(params['positions']), [1])
  return {**params, 'positions': np.concatenate(
      [cls, np.zeros_like(params['registers']), patches])}


def _huggingface_config(
    plain: Mapping[str, Any], resolution: tuple[int, int],
    preprocess: preprocess_lib.Preprocess,
) -> dict[str, Any]:
  classes = plain['num_classes']
  labels = preprocess.labels or tuple(f'LABEL_{i}' for i in range(classes))
  if len(labels) != classes:
    raise ValueError(
        f'There are {len(labels)} names for {classes} classes.')
  height, width = resolution
  patch = plain['patch']
  return {
      'architectures': [
          'ViTForImageClassification' if classes else 'ViTModel'],
      'model_type': 'vit',
      'hidden_size': plain['width'], 'num_hidden_layers': plain['depth'],
      'num_attention_heads': plain['num_heads'],
      'intermediate_size': plain['mlp_dim'],
      'hidden_act': {'exact': 'gelu', 'tanh': 'gelu_pytorch_tanh'}[
          plain['gelu']],
      'layer_norm_eps': plain['layer_norm_epsilon'],
      'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0,
      'initializer_range': 0.02,
      'image_size': height if height == width else [height, width],
      'patch_size': patch if isinstance(patch, int) else list(patch),
      'num_channels': 3, 'qkv_bias': plain['qkv_bias'],
      'id2label': {str(i): label for i, label in enumerate(labels)},
      'label2id': {label: i for i, label in enumerate(labels)},
      'torch_dtype': 'float32'}


def _write_folder(
    folder: pathlib.Path, arrays: Mapping[str, np.ndarray],
    texts: Mapping[str, Any],
) -> None:
  folder.mkdir()
  safetensors.write(folder / 'model.safetensors', arrays)
  for name, content in texts.items():
    (folder / name).write_text(json.dumps(content, indent=2) + '\n')


def _write_whole(
    target: pathlib.Path, write_to: Callable[[pathlib.Path], None],
) -> None:
  """Writes beside the target, then renames: nobody sees a half of it."""
  if target.exists():
    raise FileExistsError(f'{target} exists already. Name another --target.')
  target.parent.mkdir(parents=True, exist_ok=True)
  beside = pathlib.Path(tempfile.mkdtemp(
      dir=target.parent, prefix=f'.{target.name}.'))
  with contextlib.ExitStack() as stack:
    stack.callback(shutil.rmtree, beside, ignore_errors=True)
    write_to(beside / target.name)
    os.rename(beside / target.name, target)
