"""The config.json of timm and of Hugging Face, read strictly.

A config is taken apart in two: claims, which the arrays can confirm or deny,
and settings, which only it can say.
"""

from collections.abc import Mapping
import dataclasses
import json
import pathlib
import re
import typing
from typing import Any

from vit_jax import records
from vit_jax.checkpoints import overrides
from vit_jax.interop import preprocess as preprocess_lib
from vit_jax.models import variants
from vit_jax.models import vit_config

_VIT_TYPES = ('vit', 'deit')
_HF_GELU = {'gelu': 'exact', 'gelu_python': 'exact', 'gelu_new': 'tanh',
            'gelu_pytorch_tanh': 'tanh', 'gelu_fast': 'tanh'}
_TIMM_GELU = {'gelu': 'exact', 'gelu_tanh': 'tanh'}
_TIMM_POOLS = {'token': 'cls', 'avg': 'average', 'map': 'attention'}
_TIMM_SIZES = {'tiny': 'Ti', 'small': 'S', 'base': 'B', 'large': 'L',
               'huge': 'H', 'giant': 'g', 'gigantic': 'G'}


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
  """
  families: tuple[str, ...]
  what: str
  claims: dict[str, Any] = dataclasses.field(default_factory=dict)
  spelled: dict[str, str] = dataclasses.field(default_factory=dict)
  settings: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)

  def claim(self, name: str, theirs: str, value: Any) -> None:
    """Notes what the file says of a key, under its own name of it."""
    self.claims[name] = _typed(name, value, theirs)
    self.spelled[name] = theirs


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Returns the object that a file of JSON holds.

  Raises:
    ValueError: if it is not JSON, or no object.
  """
  try:
    found = json.loads(path.read_text())
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{path.name} is not JSON: {error}') from error
  if not isinstance(found, dict):
    raise ValueError(
        f'{path.name} holds {type(found).__name__}, not an object.')
  return found


def parse(config: Mapping[str, Any]) -> Config | None:
  """Returns what a config.json says; None if it is of no library we know.

  Raises:
    ValueError: if a value is not what it must be.
  """
  try:
    if 'architecture' in config or 'pretrained_cfg' in config:
      found = _timm(config)
    elif 'model_type' in config or 'hidden_size' in config:
      found = _huggingface(config)
    else:
      return None
    # The resolution may be left to the weights; it stands in for that here.
    preprocess_lib.parse({'resolution': (1, 1), **found.preprocess})
  # A list where an object was to be, and the like, at any depth of it.
  except (TypeError, AttributeError, KeyError, IndexError,
          ZeroDivisionError) as error:
    raise ValueError(
        f'it is not understood: {type(error).__name__}: {error}') from error
  return found


def _typed(name: str, value: Any, theirs: str) -> Any:
  if name == 'resolution':
    sides = (value, value) if isinstance(value, int) else value
    return records.convert(sides, tuple[int, int], where=theirs)
  hint = {'features': int, 'cls': bool}.get(
      name, typing.get_type_hints(vit_config.ViTConfig).get(name, Any))
  return records.convert(value, hint, where=theirs)


def _huggingface(config: Mapping[str, Any]) -> Config:
  """Reads Hugging Face's config, and the page's, which has its first names."""
  kind = config.get('model_type')
  if kind is not None and kind not in _VIT_TYPES:
    return Config((), f'model_type {kind!r}')
  result = Config(('huggingface',) if kind else ('huggingface', 'scratch'),
                  f'model_type {kind!r}' if kind else 'a ViT')
  for theirs, ours in (
      ('hidden_size', 'width'), ('num_hidden_layers', 'depth'),
      ('intermediate_size', 'mlp_dim'), ('patch_size', 'patch'),
      ('qkv_bias', 'qkv_bias'), ('image_size', 'resolution')):
    if config.get(theirs) is not None:
      result.claim(ours, theirs, config[theirs])
  if 'depth' in result.claims:
    result.settings['depth'] = result.claims['depth']
  for theirs, ours in (('num_attention_heads', 'num_heads'),
                       ('layer_norm_eps', 'layer_norm_epsilon')):
    if theirs in config:
      result.settings[ours] = _typed(ours, config[theirs], theirs)
  if config.get('hidden_act') is not None:
    result.settings['gelu'] = _HF_GELU[records.check_name(
        config['hidden_act'], list(_HF_GELU), what='hidden_act')]
  if 'resolution' in result.claims:
    result.preprocess['resolution'] = result.claims['resolution']
  _read_labels(config, result)
  return result


def _read_labels(config: Mapping[str, Any], result: Config) -> None:
  labels = config.get('id2label') or {}
  counts = {theirs: config[theirs] for theirs in ('num_labels', 'num_classes')
            if config.get(theirs) is not None}
  if labels:
    counts['id2label'] = len(labels)
  if len(set(counts.values())) > 1:
    raise ValueError(
        'it says ' + ', '.join(f'{theirs}: {count}' + (
            ' names' if theirs == 'id2label' else '')
                               for theirs, count in counts.items())
        + ': which is it?')
  for theirs, count in counts.items():
    result.claim('num_classes', theirs, count)
  if counts and not any('Classification' in str(a) for a in
                        config.get('architectures') or ('Classification',)):
    # The base model has no head, whatever its config carries along.
    del result.claims['num_classes']
    return
  text = [str(labels[k]) for k in sorted(labels, key=int)]
  if text != [f'LABEL_{i}' for i in range(len(text))]:
    result.preprocess['labels'] = tuple(text)


def _timm(config: Mapping[str, Any]) -> Config:
  name = str(config.get('architecture', '')).split('.')[0]
  given = config.get('model_args') or {}
  resnet = name.startswith('resnetv2_')
  is_vit = not name or re.match(r'(test_)?vit_|deit3?_|flexivit_', name)
  if not (resnet or is_vit):
    return Config((), f'architecture {name!r}')
  families = ('timm_bit',) if resnet else (
      ('timm',) if name else ('timm', 'timm_bit'))
  result = Config(families, f'architecture {name!r}')
  variant = _timm_variant(name)
  if variant:
    for ours, value in overrides.of_variant(variant).items():
      result.claims[ours] = value
      result.spelled[ours] = f'{ours} of {name}'
  result.preprocess |= preprocess_lib.from_timm(config)
  if config.get('num_classes') is not None:
    result.claim('num_classes', 'num_classes', config['num_classes'])
  if config.get('num_features') is not None:
    result.claim('features', 'num_features', config['num_features'])
  if resnet:
    _read_stages(given, result)
    return result
  for theirs, ours in (
      ('embed_dim', 'width'), ('depth', 'depth'), ('patch_size', 'patch'),
      ('num_heads', 'num_heads'), ('qkv_bias', 'qkv_bias'),
      ('reg_tokens', 'registers'), ('class_token', 'cls'),
      ('img_size', 'resolution')):
    if given.get(theirs) is not None:
      result.claim(ours, theirs, given[theirs])
  if given.get('embed_dim') is not None:
    result.claims.pop('mlp_dim', None)  # Of the architecture's own width.
  if given.get('mlp_ratio') is not None and 'width' in result.claims:
    result.claim('mlp_dim', 'mlp_ratio',
                 int(given['mlp_ratio'] * result.claims['width']))
  _read_tokens(config, given, result)
  return result


def _read_stages(given: Mapping[str, Any], result: Config) -> None:
  """Reads what timm's BiT has otherwise than the architecture of its name."""
  backbone = result.claims.get('backbone')
  if backbone and given.get('stem_chs') is not None:
    # The name's factor multiplies the argument as well.
    factor = backbone['width'] // 64
    backbone['width'] = factor * _typed('width', given['stem_chs'], 'stem_chs')
    result.claims.pop('features', None)
  if backbone and given.get('layers') is not None:
    backbone['depths'] = tuple(given['layers'])


def _read_tokens(
    config: Mapping[str, Any], given: Mapping[str, Any], result: Config,
) -> None:
  """Reads how timm's ViT comes from tokens to a representation."""
  pool = config.get('global_pool') or given.get('global_pool')
  if pool in _TIMM_POOLS:
    result.claim('pooling', 'global_pool', _TIMM_POOLS[pool])
    result.settings['pooling'] = _TIMM_POOLS[pool]
  norm_after = given.get('fc_norm')
  norm_after = pool == 'avg' if norm_after is None else norm_after
  if given.get('final_norm') is not None:
    result.claim('pool_norm', 'fc_norm', given['final_norm'] and norm_after)
    result.claim('final_norm', 'final_norm',
                 given['final_norm'] and not norm_after)
    result.settings['final_norm'] = result.claims['final_norm']
  if given.get('pos_embed') == 'none':
    result.claim('position', 'pos_embed', 'none')
    result.settings['position'] = 'none'
  if isinstance(given.get('act_layer'), str):
    result.settings['gelu'] = _TIMM_GELU[records.check_name(
        given['act_layer'], list(_TIMM_GELU), what='act_layer')]
  for name in ('num_heads', 'depth'):
    if name in result.claims:
      result.settings[name] = result.claims[name]
  if 'resolution' in result.claims:
    result.preprocess['resolution'] = result.claims['resolution']


def _timm_variant(name: str) -> str:
  """Returns our name of one of timm's architectures; '' if we have none."""
  sizes = '|'.join(_TIMM_SIZES)
  for pattern, text in (
      (rf'(?:vit|deit3?)_({sizes})_patch(\d+)(?:_\d+)?', '{}/{}'),
      (rf'vit_({sizes})_r(\d*)_s(\d+)(?:_p8)?(?:_\d+)?', 'R{1}+{0}/{2}')):
    match = re.fullmatch(pattern, name)
    if match:
      variant = text.format(_TIMM_SIZES[match[1]], *match.groups()[1:])
      hybrid = '+' in variant
      return variant if not hybrid or variant in variants.HYBRIDS else ''
  match = re.fullmatch(r'resnetv2_(\d+)x(\d+)_bit', name)
  variant = f'R{match[1]}x{match[2]}' if match else ''
  return variant if variant in variants.RESNETS else ''
