"""Weights of other codebases are loaded exactly, or not at all."""

import ml_dtypes
import numpy as np
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import safetensors

under = zoo_models.under


def load(family, arrays, tmp_path, **overrides):
  if family in ('timm', 'huggingface', 'scratch'):
    overrides = {'num_heads': 2, **overrides}
  return foreign.load(
      zoo_models.write(tmp_path / 'x', family, arrays), overrides)


def params(**settings):
  return random_models.params(random_models.config_of(**settings))


def without(arrays, *names):
  return {name: a for name, a in arrays.items() if name not in names}


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


def renamed(*pairs):
  """Returns a layout that replaces parts of names."""
  def rename(arrays):
    for old, new in pairs:
      arrays = {name.replace(old, new): a for name, a in arrays.items()}
    return arrays
  return rename


# Flax numbered the modules of a block otherwise before 2021.
BEFORE_2021 = renamed(
    ('DotProductAttention_0', 'DotProductAttention_1'),
    ('LayerNorm_1', 'LayerNorm_2'), ('MlpBlock_0', 'MlpBlock_3'))
TRANSFORMERS_4 = renamed(
    ('vit.layers.', 'vit.encoder.layer.'), ('mlp.fc1', 'intermediate.dense'),
    ('mlp.fc2', 'output.dense'), ('o_proj', 'output.dense'),
    ('q_proj', 'attention.query'), ('k_proj', 'attention.key'),
    ('v_proj', 'attention.value'))
TORCH = {'gelu': 'exact', 'layer_norm_epsilon': 1e-12}
BIG_VISION = renamed(
    ('Transformer/posembed_input/pos_embedding', 'pos_embedding'))


def with_optimizer(arrays):
  return {**under('opt/target/', arrays), 'opt/state/step': np.int32(3),
          **{f'opt/state/param_states/{n}/ema': a for n, a in arrays.items()}}


def with_axes(arrays):
  """Adds the axes that scales of group norm had."""
  return {name: a.reshape(1, 1, 1, -1) if '/gn' in name or 'gn_' in name else a
          for name, a in arrays.items()}


@pytest.mark.parametrize(('family', 'layout', 'settings', 'implied'), [
    ('npz', dict, {}, {}), ('npz', BEFORE_2021, {}, {}),
    ('npz', with_optimizer, {}, {}),
    ('npz', lambda arrays: stacked(BIG_VISION(arrays)),
     {'pooling': 'attention'}, {}),
    ('huggingface', TRANSFORMERS_4, {}, TORCH),
    ('npz', dict, {'position_cls': False}, {}),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ('npz', stacked, {}, {}),
        ('npz', dict, {'representation_layer': True}, {}),
        ('npz', lambda arrays: under('params/', arrays), {}, {}),
        ('npz', with_axes, random_models.HYBRID, {}),
        ('resnet', lambda arrays: under('params/', arrays),
         {**random_models.RESNET, 'backbone': {'depths': (1, 2), 'width': 32}},
         {}),
        *((family, lambda a, state=state: {**under(state, a), **a}, {}, implied)
          for family, state, implied in (
              ('npz', 'opt_state/0/mu/', {}), ('npz', 'opt/state/', {}),
              ('timm', 'optimizer.exp_avg.', {'gelu': 'exact'}))),
        ('huggingface', renamed(('vit.', 'deit.')), {}, TORCH),
        ('scratch', dict, {'final_norm': False}, {'layer_norm_epsilon': 1e-5}),
        *(('npz', dict, settings, {}) for settings in (
            {'pooling': 'average'}, {'num_classes': 0}, {'qkv_bias': False}))])
])
def test_every_published_layout_loads(
    family, layout, settings, implied, tmp_path):
  arrays = layout(zoo_models.arrays(family, **settings))
  loaded = load(family, arrays, tmp_path)
  random_models.assert_same(loaded.read(), params(**settings))
  assert loaded.config == random_models.config_of(**settings, **implied)
  if family != 'resnet':  # It has no positions.
    assert loaded.resolution == (32, 32)


def test_the_sides_of_patches_are_inferred(tmp_path):
  arrays = zoo_models.arrays('npz', (32, 16), patch=(8, 4))
  loaded = load('npz', arrays, tmp_path)
  assert (loaded.config.patch, loaded.resolution) == ((8, 4), (32, 16))


def test_bfloat16_stored_as_void_loads(tmp_path):
  void = {name: a.astype(ml_dtypes.bfloat16).view('V2')
          for name, a in zoo_models.arrays('npz').items()}
  random_models.assert_same(load('npz', void, tmp_path).read(), {
      name: a.astype(ml_dtypes.bfloat16).astype(np.float32)
      for name, a in params().items()})


def test_the_unused_pooler_of_a_classifier_is_ignored(tmp_path):
  arrays = zoo_models.arrays('huggingface', representation_layer=True)
  loaded = load('huggingface', arrays, tmp_path)
  assert not loaded.config.representation_layer
  assert any('vit.pooler.dense.weight' in note for note in loaded.notes)


def test_the_summary_names_what_was_inferred_assumed_and_overridden(tmp_path):
  arrays = zoo_models.arrays('npz')
  loaded = load('npz', with_optimizer(arrays), tmp_path, gelu='exact')
  text = '\n'.join(loaded.summary)
  for words in ('published JAX ViT', 'under opt/target/', '5 classes',
                'depth=2', 'num_heads=2', 'images 32x32',
                'overrides: gelu=exact', 'assumed: mean=0.5, std=',
                f'{1 + len(arrays)} arrays', 'parameters: opt/state/step'):
    assert words in text, words


def test_heads_that_no_array_determines_come_from_the_caller_or_the_sizes(
    tmp_path):
  path = zoo_models.write(tmp_path / 'x', 'timm')
  with pytest.raises(ValueError, match='number of heads is unknown.*=N'):
    foreign.load(path)
  with pytest.raises(ValueError, match='not divide into 5 heads'):
    foreign.load(path, {'num_heads': 5})
  loaded = foreign.load(zoo_models.write(
      path, 'timm', width=192, mlp_dim=768, num_heads=3, patch=16, depth=12))
  assert (loaded.config.num_heads, loaded.config.variant) == (3, 'Ti/16')
  assert ('  assumed, as ViT-Ti has (if wrong, all outputs are wrong): '
          'num_heads=3') in loaded.summary
  # S/16 and b/16 have the same widths.
  zoo_models.write(path, 'timm', variant='b/16', depth=1, num_classes=2)
  for variant, heads in (({}, 6), ({'variant': 'b/16'}, 12)):
    assert foreign.load(path, {**variant, 'depth': 1}).config.num_heads == heads
  with pytest.raises(ValueError, match=r'expected \(12, .*found \(1, '):
    foreign.load(path, {'variant': 'b/16'})


def test_overrides_take_precedence(tmp_path):
  loaded = load(
      'npz', zoo_models.arrays('npz'), tmp_path, gelu='exact',
      layer_norm_epsilon=1e-4, mean=0.25, std=[2], labels=tuple('abcde'),
      resolution=64)
  assert loaded.config == random_models.config_of(
      gelu='exact', layer_norm_epsilon=1e-4)
  assert loaded.preprocess == preprocessing.parse({
      'resolution': 64, 'mean': 0.25, 'std': 2., 'labels': tuple('abcde')})
  # The grid of the position embeddings stays; images may be larger. 16 patches
  # are 4 x 4 as in training, although 2 x 8 would fit an image of 16 x 64.
  for size in ((64, 64), (16, 64)):
    loaded = load('npz', zoo_models.arrays('npz'), tmp_path, resolution=size)
    assert loaded.resolution == (32, 32)
    assert loaded.preprocess.resolution == size


@pytest.mark.parametrize(('settings', 'words', 'given'), [
    ({'key_bias': False}, 'rotary positions', {
        'rotary': {'reference': 16}, 'gelu': 'exact', 'post_norm': False}),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ({'pooling': 'average', 'qkv_bias': False}, 'norms before or after', {
            'post_norm': True}),
        ({'position': 'none', 'layer_scale': 0.1}, 'rotary positions', {
            'rotary': {'coordinates': 'normalized'}, 'position': 'none'}),
        ({'stem_norm': 'tokens'}, 'whose GELU', {'gelu': 'quick'})])])
def test_settings_that_no_array_shows_are_needed(
    settings, words, given, tmp_path):
  path = zoo_models.write(
      tmp_path / 'x', 'timm', **{**settings, **given}, width=12, num_heads=3)
  known = {'num_heads': 3, 'resolution': 32}
  with pytest.raises(ValueError, match=words):
    foreign.load(path, known)
  loaded = foreign.load(path, {**known, **given})
  assert loaded.config.gelu == given.get('gelu', 'exact')
  assert (loaded.config.rotary is not None) == ('rotary' in given)


@pytest.mark.parametrize(('family', 'names', 'words', 'overrides'), [
    ('timm', ('norm.weight', 'norm.bias'),
     'final_norm/scale: expected .*found nothing.*final_norm=False.',
     {'final_norm': False}),
    ('timm', ('pos_embed',),
     'positions: expected .*found nothing.*final_norm=False.',
     {'position': 'none', 'resolution': 64}),
    ('npz', ('Transformer/posembed_input/pos_embedding',),
     "position='sincos' for fixed", {'position': 'sincos'})])
def test_a_part_that_every_model_has_is_missing_unless_overridden(
    family, names, words, overrides, tmp_path):
  arrays = without(zoo_models.arrays(family), *names)
  with pytest.raises(ValueError, match=f'(?s){words}'):
    load(family, arrays, tmp_path)
  loaded = load(family, arrays, tmp_path, **overrides)
  assert all(getattr(loaded.config, name, value) == value
             for name, value in overrides.items())


def test_a_missing_head_is_reported(tmp_path):
  arrays = without(zoo_models.arrays('npz'), 'head/kernel', 'head/bias')
  loaded = load('npz', arrays, tmp_path)
  assert loaded.config.num_classes == 0
  assert '  no trained head: 0 classes, logits are empty' in loaded.summary
  with pytest.raises(ValueError, match=r'expected \(5,\), found \(0,\)'):
    load('npz', arrays, tmp_path, num_classes=5)


@pytest.mark.parametrize(('family', 'head'), [
    ('timm', 'head_dist'), ('huggingface', 'distillation_classifier')])
def test_a_distilled_model_has_two_heads(family, head, tmp_path):
  arrays = zoo_models.arrays(family, distill_token=True)
  assert load(family, arrays, tmp_path).config.distill_token
  arrays = without(arrays, f'{head}.weight', f'{head}.bias')
  if family == 'huggingface':  # Fine-tuned without a teacher.
    config = load(family, arrays, tmp_path).config
    assert (config.registers, config.pooling) == (1, 'cls')
  else:
    with pytest.raises(ValueError, match='head/distill/kernel: expected'):
      load(family, arrays, tmp_path)


@pytest.mark.parametrize(('family', 'prefixes'), [
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ('npz', ('', 'ema/')), ('timm', ('model.', 'model_ema.'))]),
    ('timm', ('student.module.backbone.', 'teacher.backbone.'))])
def test_two_copies_of_a_model_are_an_error_until_one_is_chosen(
    family, prefixes, tmp_path):
  arrays = zoo_models.arrays(family)
  both = {**under(prefixes[0], arrays),
          **under(prefixes[1], {n: a + 1 for n, a in arrays.items()})}
  with pytest.raises(ValueError, match=(
      'more than one model.*' + ' or '.join(
          f'prefix={prefix!r}' for prefix in prefixes) + '.*--set prefix=')):
    load(family, both, tmp_path)
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
  random_models.assert_same(found, expected)


def self_supervised(prefix, heads):
  """Returns a backbone and the projection heads under a prefix."""
  return zoo_models.with_zeros(
      under(prefix, zoo_models.arrays('timm', num_classes=0)), {
          f'{heads}head.mlp.0.weight': (3, 12),
          f'{heads}head.last_layer.weight_g': (3, 1), 'center': (3,)})


@pytest.mark.parametrize(('prefix', 'heads'), [
    ('teacher.backbone.', 'teacher.'), ('target_encoder.module.',) * 2,
    ('net.', 'net.'), ('a.b.ema.encoder.', 'a.b.ema.')])
def test_a_nested_backbone_is_named_and_its_projection_heads_are_ignored(
    prefix, heads, tmp_path):
  loaded = load('timm', self_supervised(prefix, heads), tmp_path)
  random_models.assert_same(loaded.read(), params(num_classes=0, gelu='exact'))
  text = '\n'.join(loaded.summary)
  assert f'(safetensors, under {prefix})' in text
  assert 'ignored: 3 arrays that are not parameters: ' in text
  # Images of these methods are normalised with ImageNet's statistics.
  assert loaded.preprocess.mean == preprocessing.IMAGENET_MEAN


def test_the_only_model_that_is_complete_is_taken(tmp_path):
  damaged = without(self_supervised('student.', 'student.'),
                    'student.blocks.0.norm1.weight')
  loaded = load('timm', {
      **self_supervised('teacher.', 'teacher.'), **damaged}, tmp_path)
  assert 'under teacher.)' in loaded.summary[0]


# 4x4 patches are as many as 3x3, a class token and 6 registers.
AMBIGUOUS = '16 position .*registers: 6.* is 3x3 or 4x4'


@pytest.mark.parametrize(('side', 'embedded', 'num', 'words'), [
    (24, True, 2, ''), ((16, 40), False, 2, 'not square'),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        (24, False, 2, ''), ((16, 40), True, 2, 'not square'),
        (32, False, 6, AMBIGUOUS), (24, True, 6, AMBIGUOUS)])])
def test_a_grid_that_is_not_square_or_ambiguous_needs_the_image_size(
    side, embedded, num, words, tmp_path):
  arrays, expected = zoo_models.registers(side, embedded=embedded, num=num)
  given = [{}]
  if words:
    with pytest.raises(ValueError, match=f'{words}.*resolution='):
      load('timm', arrays, tmp_path)
    given = [{'resolution': side}] + [{'position_cls': embedded}] * (num == 6)
  for overrides in given:
    loaded = load('timm', arrays, tmp_path, **overrides)
    random_models.assert_same(loaded.read(), expected)
    assert loaded.resolution == tuple(np.broadcast_to(side, 2))
    assert loaded.config.position_cls == embedded


@pytest.mark.parametrize(('settings', 'resolution', 'given'), [
    ({}, (32, 32), {}), ({'pooling': 'average'}, (32, 32), {}),
    ({'position_at': 'shared'}, (16, 40), {'resolution': (16, 40)})])
def test_the_grid_of_relative_positions_is_inferred(
    settings, resolution, given, tmp_path):
  loaded = load('timm', zoo_models.arrays(
      'timm', resolution, position='relative_2d', **settings), tmp_path,
                **given)
  assert loaded.resolution == resolution
  assert (loaded.config.position, loaded.config.position_at) == (
      'relative_2d', settings.get('position_at', 'stem'))
