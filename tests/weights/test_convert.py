"""Weights of other codebases are read exactly, or not at all."""

import json

import flax.linen as nn
import jax
import ml_dtypes
import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree
from vit_jax.weights import convert
from vit_jax.weights import names
from vit_jax.weights import npz
from vit_jax.weights import safetensors
from vit_jax.weights import write
from vit_jax.weights.configs import preprocessing as preprocessing_lib

TINY = {'width': 12, 'depth': 3, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}


def make(resolution=(32, 32), **settings):
  """Returns a config, and parameters of which no two are alike."""
  config = models.parse({**TINY, **settings})
  shapes = tree.flatten(convert.abstract_params(config, resolution))
  rng = np.random.default_rng(0)
  return config, {name: rng.normal(size=shape.shape).astype(np.float32)
                  for name, shape in shapes.items()}


def npz_arrays(**settings):
  _, params = make(**settings)
  return write.to_arrays(names.FAMILIES['npz'], params), params


def read_npz(arrays, tmp_path, **overrides):
  npz.write(tmp_path / 'x.npz', arrays)
  return convert.read(tmp_path / 'x.npz', overrides)


def same(loaded, params):
  found = tree.flatten(loaded.params)
  assert set(found) == set(params)
  for name, array in params.items():
    np.testing.assert_array_equal(found[name], array, err_msg=name)
  return True


def stacked(arrays):
  """Returns arrays as big_vision's scanned encoder keeps them."""
  result, layers = {}, {}
  for name, array in arrays.items():
    start, dash, rest = name.partition('encoderblock_')
    if dash:
      layers.setdefault(
          f'{start}encoderblock/{rest.split("/", 1)[1]}', []).append(array)
    else:
      result[name] = array
  return {**result, **{n: np.stack(a) for n, a in layers.items()}}


def before_2021(arrays):
  """Returns arrays under the names of Flax's first counting of modules."""
  for old, new in (('MultiHeadDotProductAttention_0',
                    'MultiHeadDotProductAttention_1'),
                   ('LayerNorm_1', 'LayerNorm_2'),
                   ('MlpBlock_0', 'MlpBlock_3')):
    arrays = {name.replace(old, new) if 'encoderblock' in name else name: a
              for name, a in arrays.items()}
  return arrays


def positions_at_the_top(arrays):
  arrays = dict(arrays)
  arrays['pos_embedding'] = arrays.pop(
      'Transformer/posembed_input/pos_embedding')
  return arrays


def with_optimizer(arrays):
  return {**{f'opt/target/{n}': a for n, a in arrays.items()},
          'opt/state/step': np.int32(3),
          **{f'opt/state/param_states/{n}/ema': a for n, a in arrays.items()}}


@pytest.mark.parametrize('layout', [
    dict, stacked, before_2021, positions_at_the_top, with_optimizer,
    lambda arrays: stacked(positions_at_the_top(arrays)),
    lambda arrays: {f'params/{n}': a for n, a in arrays.items()}],
    ids=['today', 'stacked', 'before 2021', 'positions at the top',
         'opt/target', 'big_vision', 'params'])
@pytest.mark.parametrize('settings', [
    {}, {'representation_layer': True}, {'pooling': 'attention'}],
    ids=['cls', 'representation', 'map'])
def test_every_layout_of_the_published_format_is_read(
    layout, settings, tmp_path):
  arrays, params = npz_arrays(**settings)
  loaded = read_npz(layout(arrays), tmp_path)
  assert same(loaded, params)
  assert loaded.config == models.parse({**TINY, **settings})
  assert loaded.resolution == (32, 32)


def test_group_norm_scales_with_extra_axes_are_read(tmp_path):
  settings = {'backbone': {'depths': (1, 2)}, 'patch': 1}
  arrays, params = npz_arrays(**settings)
  old = {name: a.reshape(1, 1, 1, -1) if '/gn' in name or 'gn_' in name else a
         for name, a in arrays.items()}
  assert sum(a.shape[:3] == (1, 1, 1) for a in old.values()) > 20
  loaded = read_npz(old, tmp_path)
  assert same(loaded, params)
  assert loaded.config == models.parse({**TINY, **settings})


def test_bfloat16_stored_as_void_is_read(tmp_path):
  arrays, params = npz_arrays()
  void = {name: a.astype(ml_dtypes.bfloat16).view('V2')
          for name, a in arrays.items()}
  rounded = {name: a.astype(ml_dtypes.bfloat16).astype(np.float32)
             for name, a in params.items()}
  assert same(read_npz(void, tmp_path), rounded)


@pytest.mark.parametrize(('settings', 'resolution'), [
    ({'position_cls': False}, (32, 32)),
    ({'pooling': 'average'}, (32, 32)),
    ({'qkv_bias': False, 'patch': (8, 4)}, (32, 16)),
    ({'num_classes': 0}, (32, 32)),
])
def test_what_shapes_tell_is_inferred(settings, resolution, tmp_path):
  _, params = make(resolution, **settings)
  arrays = write.to_arrays(names.FAMILIES['npz'], params)
  loaded = read_npz(arrays, tmp_path)
  assert loaded.config == models.parse({**TINY, **settings})
  assert same(loaded, params)
  assert loaded.resolution == resolution


def test_a_grid_that_is_not_square_must_be_said(tmp_path):
  _, params = make((24, 48))
  arrays = write.to_arrays(names.FAMILIES['npz'], params)
  with pytest.raises(ValueError, match='19 position .*no square.*resolution='):
    read_npz(arrays, tmp_path)
  assert read_npz(arrays, tmp_path, resolution=(24, 48)).resolution == (24, 48)


def test_what_was_inferred_is_said_and_each_parameter_reported(tmp_path):
  arrays, params = npz_arrays()
  loaded = read_npz(with_optimizer(arrays), tmp_path, gelu='exact')
  text = '\n'.join(loaded.statement)
  for words in ('published JAX ViT', 'under opt/target/', '5 classes',
                'depth 3', '2 heads', 'images 32x32', 'given: gelu=exact',
                'assumed: images in [-1, 1]'):
    assert words in text
  report = '\n'.join(loaded.report)
  assert all(f'-> {name} ' in report for name in params)
  assert 'ignored opt/state/step' in report


def test_an_override_wins_and_a_misspelt_one_is_an_error(tmp_path):
  arrays, _ = npz_arrays()
  loaded = read_npz(arrays, tmp_path, gelu='exact', layer_norm_epsilon=1e-4,
                    mean=0.25, labels=('a', 'b', 'c', 'd', 'e'))
  assert (loaded.config.gelu, loaded.config.layer_norm_epsilon) == (
      'exact', 1e-4)
  assert loaded.preprocess.mean == (0.25,) * 3
  assert loaded.preprocess.labels[4] == 'e'
  with pytest.raises(ValueError, match="Did you mean 'num_heads'"):
    read_npz(arrays, tmp_path, num_head=4)


@pytest.mark.parametrize('overrides', [
    {'num_heads': 4}, {'depth': 4}, {'num_classes': 6}, {'registers': 1}])
def test_an_override_that_weights_contradict_shows_both(overrides, tmp_path):
  arrays, _ = npz_arrays()
  with pytest.raises(ValueError, match='expected .*, found '):
    read_npz(arrays, tmp_path, **overrides)


# ------------------------------------------------------------- hostile files


@pytest.mark.parametrize('name', [
    'Transformer/encoderblock_1/LayerNorm_0/scale',
    'Transformer/encoderblock_2/MlpBlock_0/Dense_1/bias',
    'Transformer/encoderblock_0/MultiHeadDotProductAttention_0/key/kernel'])
def test_a_missing_array_of_a_layer_is_named(name, tmp_path):
  arrays, _ = npz_arrays()
  del arrays[name]
  with pytest.raises(ValueError, match=f'{name}: expected, found nothing'):
    read_npz(arrays, tmp_path)


@pytest.mark.parametrize(('name', 'ours'), [
    ('head/bias', 'head/dense/bias'), ('embedding/bias', 'patches/bias'),
    ('Transformer/encoder_norm/bias', 'final_norm/bias')])
def test_a_missing_array_is_named(name, ours, tmp_path):
  arrays, _ = npz_arrays()
  del arrays[name]
  with pytest.raises(ValueError, match=f'{ours}: expected .*found nothing'):
    read_npz(arrays, tmp_path)


def test_weights_without_an_encoder_are_told_what_they_lack(tmp_path):
  arrays, _ = npz_arrays()
  few = {n: arrays[n] for n in ('embedding/kernel', 'head/bias', 'cls')}
  with pytest.raises(ValueError, match='expected .*LayerNorm_0/scale'):
    read_npz(few, tmp_path)


def test_a_published_size_that_lacks_its_last_layer_is_an_error(tmp_path):
  arrays, _ = npz_arrays(width=192, mlp_dim=768, num_heads=3, patch=16,
                         depth=11)
  with pytest.raises(ValueError, match='of Ti/16, but 11 layers .* has 12'):
    read_npz(arrays, tmp_path)
  assert read_npz(arrays, tmp_path, depth=11).config.depth == 11


@pytest.mark.parametrize(('change', 'words'), [
    ({'extra/kernel': np.zeros(3, np.float32)},
     'extra/kernel: expected nothing'),
    ({'head/bias': np.zeros(6, np.float32)}, r'expected \(5,\), found \(6,\)'),
    ({'head/bias': np.zeros(5, np.int32)}, 'head/bias has dtype int32'),
    ({'cls': np.full((1, 1, 12), np.nan)}, 'cls holds 12 of 12 values'),
    ({'cls': np.zeros((2, 12))}, r'cls: expected \[1 n d\], found \(2, 12\)'),
    ({'Transformer/encoderblock_1/LayerNorm_0/scale': np.zeros(13)},
     r'\(13,\) \(Transformer/encoderblock_1/LayerNorm_0/scale\)')])
def test_an_array_that_is_wrong_is_an_error(change, words, tmp_path):
  arrays, _ = npz_arrays()
  with pytest.raises(ValueError, match=words):
    read_npz({**arrays, **change}, tmp_path)


def test_files_and_folders_of_something_else_are_errors(tmp_path):
  (tmp_path / 'a.npz').write_text('not found')
  with pytest.raises(ValueError, match="no file of weights.*b'not found'"):
    convert.read(tmp_path / 'a.npz')
  folder = tmp_path / 'folder'
  folder.mkdir()
  (folder / 'cat.jpg').write_bytes(b'\xff\xd8')
  with pytest.raises(ValueError, match='neither weights .* Found: cat.jpg'):
    convert.read(folder)
  npz.write(folder / 'a.npz', {'resnet18/conv1': np.zeros(3, np.float32)})
  with pytest.raises(ValueError, match='not those of a family.*resnet18/conv1'):
    convert.read(folder)
  npz.write(folder / 'b.npz', {'x': np.zeros(3, np.float32)})
  with pytest.raises(ValueError, match='several .*: a.npz, b.npz. Name one'):
    convert.read(folder)


def test_a_part_that_our_models_lack_is_named(tmp_path):
  _, params = make()
  arrays = write.to_arrays(names.FAMILIES['timm'], params)
  arrays['dist_token'] = np.zeros((1, 1, 12), np.float32)
  safetensors.write(tmp_path / 'x', arrays)
  with pytest.raises(ValueError, match='dist_token.*a distillation token'):
    convert.read(tmp_path / 'x', {'num_heads': 2})


# ---------------------------------------------------------- timm, Hugging Face


def test_heads_that_nothing_tells_must_be_said(tmp_path):
  _, params = make()
  safetensors.write(
      tmp_path / 'x', write.to_arrays(names.FAMILIES['timm'], params))
  with pytest.raises(ValueError, match='do not tell how many heads .*=N'):
    convert.read(tmp_path / 'x')
  with pytest.raises(ValueError, match='does not divide into 5 heads'):
    convert.read(tmp_path / 'x', {'num_heads': 5})
  assert same(convert.read(tmp_path / 'x', {'num_heads': 2}), params)


def test_heads_of_a_published_size_come_from_the_table(tmp_path):
  _, params = make(width=192, mlp_dim=768, num_heads=3, patch=16, depth=12)
  safetensors.write(
      tmp_path / 'x', write.to_arrays(names.FAMILIES['timm'], params))
  loaded = convert.read(tmp_path / 'x')
  assert (loaded.config.num_heads, loaded.config.variant) == (3, 'Ti/16')
  assert loaded.config.gelu == 'exact'


def old_huggingface(arrays):
  """Returns arrays under the names of transformers before version 5."""
  for new, old in (
      ('vit.layers.', 'vit.encoder.layer.'), ('mlp.fc1', 'intermediate.dense'),
      ('mlp.fc2', 'output.dense'), ('o_proj', 'output.dense'),
      ('q_proj', 'attention.query'), ('k_proj', 'attention.key'),
      ('v_proj', 'attention.value')):
    arrays = {name.replace(new, old): a for name, a in arrays.items()}
  return arrays


@pytest.mark.parametrize('rename', [dict, old_huggingface])
def test_a_folder_of_hugging_face_says_what_shapes_do_not(rename, tmp_path):
  _, params = make()
  arrays = rename(write.to_arrays(names.FAMILIES['huggingface'], params))
  safetensors.write(tmp_path / 'model.safetensors', arrays)
  (tmp_path / 'config.json').write_text(json.dumps({
      'model_type': 'vit', 'hidden_size': 12, 'num_hidden_layers': 3,
      'num_attention_heads': 2, 'intermediate_size': 20, 'image_size': 32,
      'hidden_act': 'gelu_pytorch_tanh', 'layer_norm_eps': 1e-7,
      'id2label': {str(i): f'class {i}' for i in range(5)}}))
  (tmp_path / 'preprocessor_config.json').write_text(json.dumps({
      'size': {'height': 32, 'width': 32}, 'image_mean': [0.1, 0.2, 0.3],
      'image_std': [0.4, 0.5, 0.6], 'resample': 3}))
  loaded = convert.read(tmp_path)
  assert same(loaded, params)
  assert (loaded.config.gelu, loaded.config.layer_norm_epsilon) == (
      'tanh', 1e-7)
  assert loaded.preprocess == preprocessing_lib.Preprocess(
      resolution=(32, 32), mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6),
      interpolation='bicubic', labels=tuple(f'class {i}' for i in range(5)))
  # What config.json promises must be there.
  config = json.loads((tmp_path / 'config.json').read_text())
  (tmp_path / 'config.json').write_text(json.dumps(
      {**config, 'num_hidden_layers': 4}))
  with pytest.raises(
      ValueError, match='num_hidden_layers: expected 4, found 3'):
    convert.read(tmp_path)


def test_the_pooler_that_a_classifier_carries_along_is_left_out(tmp_path):
  _, params = make(representation_layer=True)
  safetensors.write(
      tmp_path / 'x', write.to_arrays(names.FAMILIES['huggingface'], params))
  loaded = convert.read(tmp_path / 'x', {'num_heads': 2})
  assert not loaded.config.representation_layer
  assert 'ignored vit.pooler.dense.weight' in '\n'.join(loaded.report)


def test_shards_are_read_as_one(tmp_path):
  _, params = make()
  arrays = write.to_arrays(names.FAMILIES['timm'], params)
  parts = list(arrays)[:20], list(arrays)[20:]
  for i, part in enumerate(parts):
    safetensors.write(tmp_path / f'm-{i}.safetensors',
                      {name: arrays[name] for name in part})
  index = tmp_path / 'm.safetensors.index.json'
  index.write_text(json.dumps({'weight_map': {
      name: f'm-{i}.safetensors' for i, p in enumerate(parts) for name in p}}))
  assert same(convert.read(tmp_path, {'num_heads': 2}), params)
  (tmp_path / 'm-1.safetensors').unlink()
  with pytest.raises(ValueError, match="m-1.safetensors', but it is not"):
    convert.read(tmp_path, {'num_heads': 2})


def test_timm_registers_with_positions_compute_the_same(tmp_path):
  _, params = make(registers=2)
  arrays = write.to_arrays(names.FAMILIES['timm'], params)
  offsets = np.ones((1, 2, 12), np.float32)
  arrays['pos_embed'] = np.concatenate(
      [arrays['pos_embed'][:, :1], offsets, arrays['pos_embed'][:, 1:]], axis=1)
  safetensors.write(tmp_path / 'x', arrays)
  loaded = convert.read(tmp_path / 'x', {'num_heads': 2})
  expected = {**params, 'registers': params['registers'] + 1}
  assert same(loaded, expected)


def test_the_trained_pages_names_set_what_it_computes(tmp_path):
  _, params = make(final_norm=False)
  arrays = write.to_arrays(names.FAMILIES['scratch'], params)
  assert 'encoder.blocks.2.attention.qkv_projection.weight' in arrays
  safetensors.write(tmp_path / 'x', arrays)
  loaded = convert.read(tmp_path / 'x', {'num_heads': 2})
  assert same(loaded, params)
  assert (loaded.config.gelu, loaded.config.layer_norm_epsilon,
          loaded.config.final_norm) == ('tanh', 1e-5, False)


def test_shapes_alone_are_made_of_a_model():
  config = models.parse(TINY)
  model = models.build(config, num_classes=5)
  images = jax.ShapeDtypeStruct((1, 32, 32, 3), 'float32')
  whole = nn.unbox(models.init(model, jax.random.key(0), images))
  assert tree.differences(
      convert.abstract_params(config, (32, 32)), whole) == []
