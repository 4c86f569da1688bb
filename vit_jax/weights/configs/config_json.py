"""The config.json of timm and of Hugging Face, read strictly.

A config is taken apart in three: claims, which the arrays can confirm or deny,
settings, which only it can say, and what keeps it from being a model of ours.
"""

from collections.abc import Container, Mapping
import json
import pathlib
from typing import Any

from vit_jax.weights import claims
from vit_jax.weights.configs import preprocessing as preprocessing_lib
from vit_jax.weights.configs import timm

# Hugging Face's `problem_type`, of what is no choice among classes.
PROBLEMS = {'sigmoid': 'multi_label_classification', 'none': 'regression'}
_VIT_TYPES = ('vit', 'deit')
_HF_GELU = {'gelu': 'exact', 'gelu_python': 'exact', 'gelu_new': 'tanh',
            'gelu_pytorch_tanh': 'tanh', 'gelu_fast': 'tanh'}


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


def parse(
    config: Mapping[str, Any], given: Container[str] = (),
) -> claims.Config | None:
  """Returns what a config.json says; None if it is of no library we know.

  Args:
    config: what is in it.
    given: overrides, by their names: what they say need not be understood.

  Raises:
    ValueError: if a value is not what it must be.
  """
  try:
    if 'architecture' in config or 'pretrained_cfg' in config:
      found = timm.parse(config, given)
    elif 'model_type' in config or 'hidden_size' in config:
      found = _huggingface(config)
    else:
      return None
    # The resolution may be left to the weights; it stands in for that here.
    preprocessing_lib.parse({'resolution': (1, 1), **found.preprocess})
  # A list where an object was to be, and the like, at any depth of it.
  except (TypeError, AttributeError, KeyError, IndexError,
          ZeroDivisionError) as error:
    raise ValueError(
        f'it is not understood: {type(error).__name__}: {error}') from error
  return found


def _huggingface(config: Mapping[str, Any]) -> claims.Config:
  """Reads Hugging Face's config, and the page's, which has its first names."""
  kind = config.get('model_type')
  if kind is not None and kind not in _VIT_TYPES:
    return claims.Config((), f'model_type {kind!r}')
  result = claims.Config(
      ('huggingface',) if kind else ('huggingface', 'scratch'),
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
      result.settings[ours] = claims.typed(ours, config[theirs], theirs)
  act = config.get('hidden_act')
  if isinstance(act, str) and act in _HF_GELU:
    result.settings['gelu'] = _HF_GELU[act]
  elif act is not None:
    result.refuse(
        f'hidden_act is {act!r}, but our models have one of '
        f'{", ".join(_HF_GELU)}. If it is one of them, say which: '
        "gelu='exact' or gelu='tanh'.", unless='gelu')
  if config.get('pooler_act') is not None:
    result.pooler = str(config['pooler_act'])
  if 'resolution' in result.claims:
    result.preprocess['resolution'] = result.claims['resolution']
  for activation, problem in PROBLEMS.items():
    if config.get('problem_type') == problem:
      result.preprocess['activation'] = activation
  _read_labels(config, result)
  return result


def _read_labels(config: Mapping[str, Any], result: claims.Config) -> None:
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
