"""What is said of a model beside its arrays: in the file, or config.json."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import pathlib
from typing import Any, Literal

from vit_jax import models
from vit_jax import records
from vit_jax.checkpoints import opening
from vit_jax.interop import files
from vit_jax.interop import layout
from vit_jax.interop import preprocess as preprocess_lib

KEY = 'vit_jax'  # In the metadata of a file: JSON, of the form of `_Own`.


@dataclasses.dataclass(frozen=True)
class _Own:
  """What our safetensors files say: plain data of both records.

  Attributes:
    model: the section `model`, of the model's own config.
    preprocess: that of `Preprocess`.
    resolution: height and width that the positions are for, where it is
      another than that of `preprocess`.
    positions: how they are resized; the family's way if it is not said.
  """
  model: dict[str, Any]
  preprocess: dict[str, Any]
  resolution: tuple[int, int] | None = None
  positions: Literal['linear', 'cubic'] | None = None


@dataclasses.dataclass
class Hints:
  """What a config.json beside the weights says."""
  section: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)
  source: str = ''
  resolution: tuple[int, int] | None = None  # Of the positions alone.
  positions: str | None = None


def read(
    path: pathlib.Path, opened: files.ArrayFile,
    matches: Sequence[layout.Match],
) -> Hints:
  if KEY in opened.metadata:
    return _own(opened)
  folder = path if path.is_dir() else path.parent
  file = folder / 'config.json'
  if not file.is_file():
    return Hints()
  config = opening.read_json(file)
  hints = _hints_of(config)
  if hints is None or (path.is_file() and not _same_width(
      config, opened, matches)):
    return Hints()
  hints.source = str(file)
  preprocessor = folder / 'preprocessor_config.json'
  if preprocessor.is_file():
    hints.preprocess |= preprocess_lib.from_huggingface(
        opening.read_json(preprocessor))
  return hints


def _own(opened: files.ArrayFile) -> Hints:
  """Returns what a file that we wrote says of its model.

  Raises:
    ValueError: if it says something that no model of ours is.
  """
  where = f'{KEY} in the metadata of {opened.path}'
  try:
    found = json.loads(opened.metadata[KEY])
  except ValueError as error:
    raise ValueError(f'{where} is not JSON: {error}') from error
  own = records.parse(_Own, found, where=where)
  try:
    config = models.parse(own.model)
    preprocess = preprocess_lib.parse(own.preprocess)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error
  return Hints(
      section=records.to_plain(config), source='the file itself',
      resolution=own.resolution, positions=own.positions,
      preprocess={f.name: getattr(preprocess, f.name)
                  for f in dataclasses.fields(preprocess)})


def _hints_of(config: Mapping[str, Any]) -> Hints | None:
  if 'architecture' in config or 'pretrained_cfg' in config:
    return _timm_hints(config)
  if 'hidden_size' in config:
    return _huggingface_hints(config)
  return None


def _same_width(
    config: Mapping[str, Any], opened: files.ArrayFile,
    matches: Sequence[layout.Match],
) -> bool:
  """Whether the config beside a bare file can be of that file."""
  width = config.get('hidden_size') or config.get('num_features')
  norm = next((m for m in matches if m.ours.endswith('attention_norm/scale')),
              None)
  if norm is None or width is None:
    return norm is None
  return any(header.shape[-1:] == (width,) for name, header in
             opened.headers.items() if name.endswith(norm.theirs[0]))


_HF_GELU = {'gelu': 'exact', 'gelu_python': 'exact', 'gelu_new': 'tanh',
            'gelu_pytorch_tanh': 'tanh', 'gelu_fast': 'tanh'}


def _huggingface_hints(config: Mapping[str, Any]) -> Hints:
  """Reads Hugging Face's config, and the page's, which has its first names."""
  names = {'width': 'hidden_size', 'depth': 'num_hidden_layers',
           'num_heads': 'num_attention_heads', 'mlp_dim': 'intermediate_size',
           'layer_norm_epsilon': 'layer_norm_eps'}
  section = {ours: config[name] for ours, name in names.items()
             if name in config}
  act = config.get('hidden_act')
  if act is not None:
    section['gelu'] = _HF_GELU[records.check_name(
        act, list(_HF_GELU), what='hidden_act in config.json')]
  result = Hints(section=section)
  size = config.get('image_size')
  if isinstance(size, (int, list, tuple)):
    result.preprocess['resolution'] = (
        (size, size) if isinstance(size, int) else tuple(size))
  labels = config.get('id2label')
  if isinstance(labels, Mapping):
    text = [str(labels[k]) for k in sorted(labels, key=int)]
    if text != [f'LABEL_{i}' for i in range(len(text))]:
      result.preprocess['labels'] = tuple(text)
  return result


def _timm_hints(config: Mapping[str, Any]) -> Hints:
  names = {'embed_dim': 'width', 'depth': 'depth', 'num_heads': 'num_heads'}
  given = config.get('model_args') or {}
  section = {ours: given[name] for name, ours in names.items() if name in given}
  pool = config.get('global_pool') or given.get('global_pool')
  pools = {'token': 'cls', 'avg': 'average', 'map': 'attention'}
  if pool in pools and 'resnet' not in str(config.get('architecture')):
    section['pooling'] = pools[pool]
  act = given.get('act_layer')
  if isinstance(act, str):
    section['gelu'] = {'gelu': 'exact', 'gelu_tanh': 'tanh'}[records.check_name(
        act, ['gelu', 'gelu_tanh'], what='act_layer in config.json')]
  result = Hints(section=section, preprocess=preprocess_lib.from_timm(config))
  size = given.get('img_size')
  if size:
    result.preprocess['resolution'] = (
        (size, size) if isinstance(size, int) else tuple(size))
  return result
