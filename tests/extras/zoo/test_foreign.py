"""Weights of other codebases are loaded exactly, or not at all."""

import jax
import ml_dtypes
import numpy as np
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import safetensors
from vit_jax.weights.formats import npz


def write(path, family, arrays):
  (npz if family in ('npz', 'bit') else safetensors).write(path, arrays)
  return path


def load(family, arrays, tmp_path, **overrides):
  if family in ('timm', 'huggingface', 'scratch'):
    overrides = {'num_heads': 2, **overrides}
  return foreign.load(write(tmp_path / 'x', family, arrays), overrides)


def params(**settings):
  return random_models.params(random_models.config_of(**settings))


# ------------------------------------------------ layouts of the npz format


def stacked(arrays):
  """Stacks the layers, as big_vision's scanned encoder does."""
  result, layers = {}, {}
  for name, array in arrays.items():
    start, dash, rest = name.partition('encoderblock_')
    if dash:
      layers.setdefault(
          f'{start}encoderblock/{rest.split("/", 1)[1]}', []).append(array)
    else:
      result[name] = array
  return {**result, **{n: np.stack(a) for n, a in layers.items()}}


def renamed(arrays, *pairs):
  for old, new in pairs:
    arrays = {name.replace(old, new): a for name, a in arrays.items()}
  return arrays


def before_2021(arrays):
  """Numbers the modules of a block as Flax did before 2021."""
  return renamed(
      arrays, ('DotProductAttention_0', 'DotProductAttention_1'),
      ('LayerNorm_1', 'LayerNorm_2'), ('MlpBlock_0', 'MlpBlock_3'))


def top_level_positions(arrays):
  arrays = dict(arrays)
  arrays['pos_embedding'] = arrays.pop(
      'Transformer/posembed_input/pos_embedding')
  return arrays


def with_optimizer(arrays):
  return {**{f'opt/target/{n}': a for n, a in arrays.items()},
          'opt/state/step': np.int32(3),
          **{f'opt/state/param_states/{n}/ema': a for n, a in arrays.items()}}


@pytest.mark.parametrize(('layout', 'settings'), [
    (dict, {}), (stacked, {}), (before_2021, {}), (with_optimizer, {}),
    (dict, {'representation_layer': True}),
    (lambda arrays: stacked(top_level_positions(arrays)),
     {'pooling': 'attention'}),
    (lambda arrays: {f'params/{n}': a for n, a in arrays.items()}, {})],
    ids=['today', 'stacked', 'before 2021', 'opt/target', 'representation',
         'big_vision', 'params'])
def test_every_layout_of_the_published_format_loads(
    layout, settings, tmp_path):
  arrays = layout(zoo_models.arrays('npz', **settings))
  loaded = load('npz', arrays, tmp_path)
  random_models.assert_same(loaded.read(), params(**settings))
  assert loaded.config == random_models.config_of(**settings)
  assert loaded.resolution == (32, 32)


def test_group_norm_scales_with_extra_axes_load(tmp_path):
  settings = random_models.HYBRID
  arrays = zoo_models.arrays('npz', **settings)
  old = {name: a.reshape(1, 1, 1, -1) if '/gn' in name or 'gn_' in name else a
         for name, a in arrays.items()}
  assert sum(a.shape[:3] == (1, 1, 1) for a in old.values()) > 20
  loaded = load('npz', old, tmp_path)
  random_models.assert_same(loaded.read(), params(**settings))
  assert loaded.config == random_models.config_of(**settings)


def test_bfloat16_stored_as_void_loads(tmp_path):
  void = {name: a.astype(ml_dtypes.bfloat16).view('V2')
          for name, a in zoo_models.arrays('npz').items()}
  random_models.assert_same(load('npz', void, tmp_path).read(), {
      name: a.astype(ml_dtypes.bfloat16).astype(np.float32)
      for name, a in params().items()})


def old_huggingface(arrays):
  """Renames arrays as transformers did before version 5."""
  return renamed(
      arrays, ('vit.layers.', 'vit.encoder.layer.'),
      ('mlp.fc1', 'intermediate.dense'), ('mlp.fc2', 'output.dense'),
      ('o_proj', 'output.dense'), ('q_proj', 'attention.query'),
      ('k_proj', 'attention.key'), ('v_proj', 'attention.value'))


@pytest.mark.parametrize('rename', [
    old_huggingface,
    lambda arrays: renamed(arrays, ('vit.', 'deit.'))],
    ids=['before version 5', 'DeiT without distillation'])
def test_other_names_of_hugging_face_load(rename, tmp_path):
  arrays = rename(zoo_models.arrays('huggingface'))
  random_models.assert_same(
      load('huggingface', arrays, tmp_path).read(), params())


def test_the_unused_pooler_of_a_classifier_is_ignored(tmp_path):
  arrays = zoo_models.arrays('huggingface', representation_layer=True)
  loaded = load('huggingface', arrays, tmp_path)
  assert not loaded.config.representation_layer
  assert any('vit.pooler.dense.weight' in note for note in loaded.notes)


def test_scratch_weights_have_the_settings_of_their_family(tmp_path):
  arrays = zoo_models.arrays('scratch', final_norm=False)
  loaded = load('scratch', arrays, tmp_path)
  assert (loaded.config.final_norm, loaded.config.gelu,
          loaded.config.layer_norm_epsilon) == (False, 'tanh', 1e-5)
  random_models.assert_same(loaded.read(), params(final_norm=False))


def test_the_resnets_of_big_vision_are_hybrids_without_an_encoder(tmp_path):
  settings = {**random_models.RESNET, 'backbone': {
      'depths': (1, 2), 'width': 32}}
  arrays = under('params/', zoo_models.arrays('resnet', **settings))
  assert 'params/block2/unit2/conv1/kernel' in arrays
  npz.write(tmp_path / 'x', arrays)
  loaded = foreign.load(tmp_path / 'x')
  random_models.assert_same(loaded.read(), params(**settings))
  assert loaded.config == random_models.config_of(**settings)


def test_the_bit_models_of_big_vision_are_refused_with_the_reason(tmp_path):
  # Their zero padding differs from that of the published BiT.
  npz.write(tmp_path / 'x', {
      'root_block/conv_root/kernel': np.ones((7, 7, 3, 32)),
      'block1/unit01/gn1/scale': np.ones((1, 1, 1, 32))})
  with pytest.raises(ValueError, match='gn1/scale: unex.*bit_paper, which'):
    foreign.load(tmp_path / 'x')


def test_missing_position_embeddings_may_be_fixed(tmp_path):
  settings = {'position': 'sincos', 'pooling': 'average'}
  npz.write(tmp_path / 'x', zoo_models.arrays('npz', **settings))
  with pytest.raises(ValueError, match="position='sincos' for fixed"):
    foreign.load(tmp_path / 'x')
  loaded = foreign.load(tmp_path / 'x', {'position': 'sincos'})
  assert loaded.config == random_models.config_of(**settings)


# ----------------------------------------------------------------- inference


@pytest.mark.parametrize(('settings', 'resolution'), [
    ({'position_cls': False}, (32, 32)),
    ({'pooling': 'average'}, (32, 32)),
    ({'qkv_bias': False, 'patch': (8, 4)}, (32, 16)),
    ({'num_classes': 0}, (32, 32)),
])
def test_settings_are_inferred_from_shapes(settings, resolution, tmp_path):
  loaded = load('npz', zoo_models.arrays('npz', resolution, **settings),
                tmp_path)
  assert loaded.config == random_models.config_of(**settings)
  assert loaded.resolution == resolution


def test_the_summary_names_what_was_inferred_assumed_and_overridden(tmp_path):
  arrays = zoo_models.arrays('npz')
  loaded = load('npz', with_optimizer(arrays), tmp_path, gelu='exact')
  text = '\n'.join(loaded.summary)
  for words in ('published JAX ViT', 'under opt/target/', '5 classes',
                'depth=2', 'num_heads=2', 'images 32x32',
                'overrides: gelu=exact', 'assumed: mean=(0.5, 0.5, 0.5), std=',
                f'{1 + len(arrays)} arrays', 'parameters: opt/state/step'):
    assert words in text, words


def test_heads_that_no_array_determines_come_from_the_caller_or_the_sizes(
    tmp_path):
  path = write(tmp_path / 'x', 'timm', zoo_models.arrays('timm'))
  with pytest.raises(ValueError, match='number of heads is unknown.*=N'):
    foreign.load(path)
  with pytest.raises(ValueError, match='not divide into 5 heads'):
    foreign.load(path, {'num_heads': 5})
  small = zoo_models.arrays(
      'timm', width=192, mlp_dim=768, num_heads=3, patch=16, depth=12)
  loaded = foreign.load(write(path, 'timm', small))
  assert (loaded.config.num_heads, loaded.config.variant) == (3, 'Ti/16')
  assert ('  assumed, as ViT-Ti has (if wrong, all outputs are wrong): '
          'num_heads=3') in loaded.summary


def test_a_variant_sets_the_heads(tmp_path):
  path = write(tmp_path / 'x', 'timm', zoo_models.arrays(
      'timm', variant='b/16', depth=1, num_classes=2))
  # S/16 and b/16 have the same widths.
  assert foreign.load(path, {'depth': 1}).config.num_heads == 6
  assert foreign.load(
      path, {'variant': 'b/16', 'depth': 1}).config.num_heads == 12
  with pytest.raises(ValueError, match=r'expected \(12, .*found \(1, '):
    foreign.load(path, {'variant': 'b/16'})


# ----------------------------------------------------- overrides


@pytest.mark.parametrize(('overrides', 'words'), [
    *((change, 'expected .*, found ') for change in (
        {'variant': 'Ti/16'}, {'num_heads': 4}, {'patch': 16}, {'depth': 4},
        {'num_classes': 3}, {'qkv_bias': False}, {'pooling': 'attention'},
        {'layer_scale': 0.1}, {'position': 'none'},
        {'backbone': {'depths': (3, 4, 9)}})),
    ({'variant': 'R50x1'}, "expected 'resnet', found the arrays of a vit"),
    ({'labels': ['a', 'b']}, '2 labels, but the head has 5 classes'),
    ({'resolution': 30}, '30x30 does not divide into patches')])
def test_an_override_that_contradicts_the_arrays_is_an_error(
    overrides, words, tmp_path):
  with pytest.raises(ValueError, match=words):
    load('npz', zoo_models.arrays('npz'), tmp_path, **overrides)


def test_overrides_take_precedence(tmp_path):
  loaded = load(
      'npz', zoo_models.arrays('npz'), tmp_path, gelu='exact',
      layer_norm_epsilon=1e-4, mean=0.25, std=[2], labels=tuple('abcde'),
      resolution=64)
  assert (loaded.config.gelu, loaded.config.layer_norm_epsilon) == (
      'exact', 1e-4)
  assert (loaded.preprocess.mean, loaded.preprocess.std) == (
      (0.25,) * 3, (2.,) * 3)
  assert loaded.preprocess.labels == tuple('abcde')
  # The grid of the position embeddings stays; images may be larger.
  assert loaded.resolution == (32, 32)
  assert loaded.preprocess.resolution == (64, 64)
  # 16 patches are 4 x 4 as in training, although 2 x 8 would fit this image.
  loaded = load('npz', zoo_models.arrays('npz'), tmp_path,
                resolution=(16, 64))
  assert loaded.resolution == (32, 32)
  assert loaded.preprocess.resolution == (16, 64)


# ------------------------------------------------ missing and wrong arrays


@pytest.mark.parametrize(('change', 'words'), [
    *(({name: None}, f'{name}: missing') for name in (
        'Transformer/encoderblock_1/LayerNorm_0/scale',
        'Transformer/encoderblock_0/MultiHeadDotProductAttention_0/key/kernel')
      ),
    ({'head/bias': None}, 'head/dense/bias: expected .*found nothing'),
    ({'embedding/bias': None}, 'patches/bias: expected .*found nothing'),
    ({'extra/kernel': np.zeros(3, np.float32)}, 'extra/kernel: unexpected'),
    ({'head/bias': np.zeros(6, np.float32)}, r'expected \(5,\), found \(6,\)'),
    ({'head/bias': np.zeros(5, np.int32)}, 'head/bias has dtype int32'),
    ({'cls': np.full((1, 1, 12), np.nan)}, 'cls holds 12 of 12 values'),
    ({'cls': np.zeros((2, 12))}, r'cls: expected \[1 n d\], found \(2, 12\)'),
    ({'Transformer/encoderblock_1/LayerNorm_0/scale': np.zeros(13)},
     r'\(13,\) \(Transformer/encoderblock_1/LayerNorm_0/scale\)')])
def test_a_missing_array_or_a_wrong_name_shape_or_value_is_an_error(
    change, words, tmp_path):
  arrays = {**zoo_models.arrays('npz'), **change}
  with pytest.raises(ValueError, match=words):
    load('npz', {n: a for n, a in arrays.items() if a is not None},
         tmp_path).read()


def without(arrays, name):
  """Removes an array and its bias."""
  bias = name.replace('scale', 'bias').replace('weight', 'bias')
  return {n: a for n, a in arrays.items() if n not in (name, bias)}


@pytest.mark.parametrize(('name', 'ours', 'overrides'), [
    ('norm.weight', 'final_norm/scale', {'final_norm': False}),
    ('pos_embed', 'positions', {'position': 'none', 'resolution': 64})])
def test_a_part_that_every_model_has_is_missing_unless_overridden(
    name, ours, overrides, tmp_path):
  arrays = without(zoo_models.arrays('timm'), name)
  with pytest.raises(ValueError, match=(
      f'(?s){ours}: expected .*found nothing.*final_norm=False.')):
    load('timm', arrays, tmp_path)
  loaded = load('timm', arrays, tmp_path, **overrides)
  assert all(getattr(loaded.config, name, value) == value
             for name, value in overrides.items())


def test_a_missing_head_is_reported(tmp_path):
  arrays = without(without(zoo_models.arrays('npz'), 'head/kernel'),
                   'head/bias')
  loaded = load('npz', arrays, tmp_path)
  assert loaded.config.num_classes == 0
  assert ('  no trained head: 0 classes, logits are empty'
          in loaded.summary)
  with pytest.raises(ValueError, match=r'expected \(5,\), found \(0,\)'):
    load('npz', arrays, tmp_path, num_classes=5)


@pytest.mark.parametrize('family', ['timm', 'huggingface'])
def test_a_distilled_model_needs_both_heads(family, tmp_path):
  arrays = zoo_models.arrays(family, distill_token=True)
  assert load(family, arrays, tmp_path).config.distill_token
  names = {'timm': 'head_dist', 'huggingface': 'distillation_classifier'}
  for end in ('weight', 'bias'):
    del arrays[f'{names[family]}.{end}']
  with pytest.raises(ValueError, match='head/distill/kernel: expected'):
    load(family, arrays, tmp_path)


# --------------------------------------------------------------- two copies


def under(prefix, arrays):
  return {prefix + name: a for name, a in arrays.items()}


@pytest.mark.parametrize(('family', 'prefixes'), [
    ('npz', ('', 'ema/')), ('timm', ('model.', 'model_ema.'))])
def test_two_copies_of_a_model_are_an_error_until_one_is_chosen(
    family, prefixes, tmp_path):
  arrays = zoo_models.arrays(family)
  both = {**under(prefixes[0], arrays),
          **under(prefixes[1], {n: a + 1 for n, a in arrays.items()})}
  with pytest.raises(ValueError, match='more than one model') as error:
    load(family, both, tmp_path)
  for prefix in prefixes:
    assert f'prefix={prefix!r}' in str(error.value)
  first, second = (load(family, both, tmp_path, prefix=p) for p in prefixes)
  np.testing.assert_array_equal(second.read()['cls'], first.read()['cls'] + 1)
  assert f'ignored: {len(arrays)} arrays' in '\n'.join(first.summary)
  with pytest.raises(ValueError, match="known family under 'x/'"):
    load(family, both, tmp_path, prefix='x/')


@pytest.mark.parametrize(('stored', 'alias'), [
    ('blocks.0.mlp.fc1.weight', 'blocks.1.mlp.fc1.weight'),  # Both are needed.
    ('a.head', 'head.weight')])  # A module that the model held twice.
def test_names_of_tied_arrays_in_the_metadata_are_followed(
    stored, alias, tmp_path):
  arrays = zoo_models.arrays('timm')
  arrays[alias] = arrays.get(stored, arrays[alias])
  expected = load('timm', arrays, tmp_path).read()
  arrays[stored] = arrays.pop(alias)
  safetensors.write(tmp_path / 'tied', arrays, metadata={alias: stored})
  found = foreign.load(tmp_path / 'tied', {'num_heads': 2}).read()
  jax.tree.map(np.testing.assert_array_equal, found, expected)


HEADS = {'head.mlp.0.weight': (3, 12), 'head.last_layer.weight_g': (3, 1)}


def self_supervised(prefix, heads=''):
  """Returns a backbone and the projection heads under a prefix."""
  arrays = under(prefix, zoo_models.arrays('timm', num_classes=0))
  return {**arrays, **{heads + name: np.zeros(shape, np.float32)
                       for name, shape in HEADS.items()}}


@pytest.mark.parametrize(('prefix', 'heads'), [
    ('teacher.backbone.', 'teacher.'), ('target_encoder.module.',) * 2,
    ('net.', 'net.'), ('a.b.ema.encoder.', 'a.b.ema.')])
def test_a_nested_backbone_is_named_and_its_projection_heads_are_ignored(
    prefix, heads, tmp_path):
  arrays = self_supervised(prefix, heads)
  arrays['center'] = np.zeros(3, np.float32)
  safetensors.write(tmp_path / 'x', arrays)
  loaded = foreign.load(tmp_path / 'x', {'num_heads': 2})
  random_models.assert_same(
      loaded.read(), params(num_classes=0, gelu='exact'))
  text = '\n'.join(loaded.summary)
  assert f'(safetensors, under {prefix})' in text
  assert 'ignored: 3 arrays that are not parameters: ' in text
  # Images of these methods are normalised with ImageNet's statistics.
  assert loaded.preprocess.mean == preprocessing.IMAGENET_MEAN


def test_teacher_and_student_are_an_error_until_one_is_chosen(tmp_path):
  safetensors.write(tmp_path / 'x', {
      **self_supervised('teacher.backbone.', 'teacher.'),
      **self_supervised('student.module.backbone.', 'student.module.')})
  with pytest.raises(ValueError, match=(
      "prefix='student.module.backbone.' or prefix='teacher.backbone.' in .*"
      '--set prefix=')):
    foreign.load(tmp_path / 'x', {'num_heads': 2})
  loaded = foreign.load(tmp_path / 'x', {'num_heads': 2, 'prefix': 'teacher.'})
  assert 'under teacher.backbone.)' in loaded.summary[0]


def test_the_only_model_that_is_complete_is_taken(tmp_path):
  damaged = self_supervised('student.', 'student.')
  del damaged['student.blocks.0.norm1.weight']
  safetensors.write(tmp_path / 'x', {
      **self_supervised('teacher.', 'teacher.'), **damaged})
  loaded = foreign.load(tmp_path / 'x', {'num_heads': 2})
  assert 'under teacher.)' in loaded.summary[0]


@pytest.mark.parametrize(('family', 'state'), [
    ('npz', 'opt_state/0/mu/'), ('npz', 'opt/state/'),
    ('timm', 'optimizer.exp_avg.')])
def test_optimizer_state_is_not_a_copy(family, state, tmp_path):
  arrays = zoo_models.arrays(family)
  loaded = load(family, {**under(state, arrays), **arrays}, tmp_path)
  random_models.assert_same(loaded.read(), params())
  assert f'ignored: {len(arrays)} arrays' in '\n'.join(loaded.summary)


# ---------------------------------------------- grids of position embeddings


def test_a_grid_that_is_not_square_needs_the_image_size(tmp_path):
  arrays = zoo_models.arrays('npz', (24, 48))
  with pytest.raises(ValueError, match='19 position .*not square.*resolution='):
    load('npz', arrays, tmp_path)
  loaded = load('npz', arrays, tmp_path, resolution=(24, 48))
  assert loaded.resolution == (24, 48)


def registers(resolution, *, embedded, num):
  """Returns timm's arrays of a model with registers, and our parameters.

  Args:
    resolution: of the position embeddings.
    embedded: whether class token and registers have position embeddings.
    num: number of registers.
  """
  config = random_models.config_of(registers=num, position_cls=embedded)
  expected = random_models.params(config, resolution)
  arrays = zoo_models.arrays(
      'timm', resolution, registers=num, position_cls=embedded)
  if embedded:
    offsets = np.full((1, num, 12), 0.5, np.float32)
    cls, patches = np.split(arrays['pos_embed'], [1], axis=1)
    arrays['pos_embed'] = np.concatenate([cls, offsets, patches], axis=1)
    expected['registers'] = expected['registers'] + offsets[0]
  return arrays, expected


@pytest.mark.parametrize('embedded', [False, True])
@pytest.mark.parametrize(('resolution', 'num', 'overrides'), [
    ((24, 24), 2, {}), ((16, 40), 2, {'resolution': (16, 40)})])
def test_registers_load_with_and_without_position_embeddings(
    resolution, num, overrides, embedded, tmp_path):
  arrays, expected = registers(resolution, embedded=embedded, num=num)
  loaded = load('timm', arrays, tmp_path, **overrides)
  random_models.assert_same(loaded.read(), expected)
  assert loaded.resolution == resolution
  assert loaded.config.position_cls == embedded


# 4x4 patches are as many as 3x3, a class token and 6 registers.
@pytest.mark.parametrize(('side', 'embedded'), [(32, False), (24, True)])
def test_an_ambiguous_grid_needs_the_image_size(side, embedded, tmp_path):
  arrays, expected = registers((side, side), embedded=embedded, num=6)
  with pytest.raises(ValueError, match=(
      '16 position .*registers: 6.* is 3x3 or 4x4.*resolution=')):
    load('timm', arrays, tmp_path)
  for overrides in ({'resolution': side}, {'position_cls': embedded}):
    loaded = load('timm', arrays, tmp_path, **overrides)
    random_models.assert_same(loaded.read(), expected)
    assert loaded.resolution == (side, side)


@pytest.mark.parametrize(('settings', 'words', 'given'), [
    ({'key_bias': False}, 'rotary positions', {
        'rotary': {'reference': 16}, 'gelu': 'exact', 'post_norm': False}),
    ({'pooling': 'average', 'qkv_bias': False}, 'norms before or after', {
        'post_norm': True}),
    ({'position': 'none', 'layer_scale': 0.1}, 'rotary positions', {
        'rotary': {'coordinates': 'normalized'}, 'position': 'none'}),
    ({'stem_norm': 'tokens'}, 'whose GELU', {'gelu': 'quick'})])
def test_settings_that_no_array_shows_are_needed(
    settings, words, given, tmp_path):
  section = {**settings, **given, 'width': 12, 'num_heads': 3}
  safetensors.write(
      tmp_path / 'x', zoo_models.arrays('timm', (32, 32), **section))
  known = {'num_heads': 3, 'resolution': 32}
  with pytest.raises(ValueError, match=words):
    foreign.load(tmp_path / 'x', known)
  loaded = foreign.load(tmp_path / 'x', {**known, **given})
  assert loaded.config.gelu == given.get('gelu', 'exact')
  assert (loaded.config.rotary is not None) == ('rotary' in given)


@pytest.mark.parametrize(('name', 'component'), [
    ('blocks.0.attn.rel_pos_h', 'SAM'), ('blocks.1.proj.weight', 'Hiera'),
    ('layers.0.blocks.0.attn.qkv.bias', 'Swin'),
    ('patch_embed.backbone.bn1.running_mean', 'batch norm')])
def test_an_array_of_a_missing_component_names_it(name, component, tmp_path):
  safetensors.write(
      tmp_path / 'x', {**zoo_models.arrays('timm'), name: np.ones(3)})
  with pytest.raises(ValueError, match=f'{name}: unexpected .*{component}'):
    foreign.load(tmp_path / 'x')


@pytest.mark.parametrize(('settings', 'resolution', 'given'), [
    ({}, (32, 32), {}), ({'pooling': 'average'}, (32, 32), {}),
    ({'position_at': 'shared'}, (16, 40), {'resolution': (16, 40)})])
def test_the_grid_of_relative_positions_is_inferred(
    settings, resolution, given, tmp_path):
  safetensors.write(tmp_path / 'x', zoo_models.arrays(
      'timm', resolution, position='relative_2d', **settings))
  loaded = foreign.load(tmp_path / 'x', {'num_heads': 2, **given})
  assert loaded.resolution == resolution
  assert (loaded.config.position, loaded.config.position_at) == (
      'relative_2d', settings.get('position_at', 'stem'))


def test_a_missing_component_is_named_before_its_arrays(tmp_path):
  arrays = {**zoo_models.arrays('timm'), 'blocks.0.attn.gate.1': np.ones(3)}
  safetensors.write(tmp_path / 'model.safetensors', arrays)
  (tmp_path / 'config.json').write_text(
      '{"architecture": "vit_small_resnet26d_224"}')
  with pytest.raises(ValueError, match='has a ResNet-D'):
    foreign.load(tmp_path)


def test_a_variant_with_other_heads_than_the_declared_is_an_error(tmp_path):
  random_models.make(
      {'variant': 'Ti/16', 'depth': 1, 'num_heads': 12, 'num_classes': 2},
      side=16).save(tmp_path / 'x', form='timm')
  with pytest.raises(ValueError, match='declare num_heads=12'):
    foreign.load(tmp_path / 'x', {'variant': 'Ti/16', 'depth': 1})
  assert foreign.load(tmp_path / 'x', {
      'variant': 'Ti/16', 'depth': 1, 'num_heads': 3}).config.num_heads == 3
