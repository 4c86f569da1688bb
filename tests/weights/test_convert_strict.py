"""What lacks a part, or has two of one, is never read as another model."""

import functools

import numpy as np
import pytest

from vit_jax import models
from vit_jax import tree
from vit_jax.weights import convert
from vit_jax.weights import names
from vit_jax.weights import npz
from vit_jax.weights import safetensors
from vit_jax.weights import write

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
# A hybrid that is published, but for its classes; and a ResNet.
HYBRID = {'variant': 'R26+S/32', 'num_classes': 2, 'depth': 1}


@functools.cache
def shapes_of(settings):
  return tree.flatten(convert.abstract_params(
      models.parse(dict(settings)), (32, 32)))


def make(**settings):
  """Returns parameters of which no two are alike."""
  settings = settings if 'variant' in settings else {**TINY, **settings}
  rng = np.random.default_rng(0)
  return {name: rng.normal(size=shape.shape).astype(np.float32)
          for name, shape in shapes_of(tuple(settings.items())).items()}


def arrays_of(form, **settings):
  return write.to_arrays(names.FAMILIES[form], make(**settings))


def read(form, arrays, tmp_path, **overrides):
  writer = npz if form in ('npz', 'bit') else safetensors
  writer.write(tmp_path / 'x', arrays)
  if form in ('timm', 'huggingface'):
    overrides = {'num_heads': 2, **overrides}
  return convert.read(tmp_path / 'x', overrides)


# ---------------------------------------------------------- parts that lack

NORMS = {'npz': 'Transformer/encoder_norm/scale', 'timm': 'norm.weight',
         'huggingface': 'vit.layernorm.weight'}
POSITIONS = {'npz': 'Transformer/posembed_input/pos_embedding',
             'timm': 'pos_embed',
             'huggingface': 'vit.embeddings.position_embeddings'}


def without(arrays, name):
  """Leaves out an array, and the bias beside it."""
  bias = name.replace('scale', 'bias').replace('weight', 'bias')
  return {n: a for n, a in arrays.items() if n not in (name, bias)}


@pytest.mark.parametrize('form', NORMS)
def test_a_final_norm_that_lacks_must_be_said(form, tmp_path):
  arrays = without(arrays_of(form), NORMS[form])
  with pytest.raises(ValueError, match=(
      f'expected {NORMS[form]}, .* found nothing .*final_norm=False')):
    read(form, arrays, tmp_path)
  loaded = read(form, arrays, tmp_path, final_norm=False)
  assert not loaded.config.final_norm
  assert 'no final norm' in loaded.statement[1]


@pytest.mark.parametrize('form', POSITIONS)
def test_positions_that_lack_must_be_said(form, tmp_path):
  arrays = without(arrays_of(form), POSITIONS[form])
  with pytest.raises(ValueError, match=(
      f"expected {POSITIONS[form]}, .* found nothing .*position='none'")):
    read(form, arrays, tmp_path)
  loaded = read(form, arrays, tmp_path, position='none', resolution=64)
  assert loaded.config.position == 'none'
  assert loaded.resolution == (64, 64)
  assert 'no position embedding' in loaded.statement[1]


def test_timms_norm_after_pooling_stands_for_the_final_one(tmp_path):
  params = arrays_of('timm', pooling='average', pool_norm=True,
                     final_norm=False)
  loaded = read('timm', params, tmp_path)
  assert (loaded.config.final_norm, loaded.config.pool_norm) == (False, True)
  with pytest.raises(ValueError, match='expected norm.weight'):
    read('timm', without(params, 'fc_norm.weight'), tmp_path)


def test_the_page_has_no_final_norm(tmp_path):
  arrays = arrays_of('scratch', final_norm=False)
  assert not read('scratch', arrays, tmp_path, num_heads=2).config.final_norm
  with pytest.raises(ValueError, match='final_norm: expected True, found Fal'):
    read('scratch', arrays, tmp_path, num_heads=2, final_norm=True)


@pytest.mark.parametrize(('block', 'units'), [
    (4, '(2, 2, 2, 1)'), (1, '(1, 2, 2, 2)')])
def test_a_backbone_that_lacks_its_last_unit_is_an_error(
    block, units, tmp_path):
  arrays = {name: a for name, a in arrays_of('npz', **HYBRID).items()
            if not name.startswith(f'block{block}/unit2/')}
  with pytest.raises(ValueError) as error:
    read('npz', arrays, tmp_path, depth=1)
  assert 'dimensions of R26+S/32, but residual units ' in str(error.value)
  assert f'{units} where it has (2, 2, 2, 2): expected 1 more' in str(
      error.value)


def test_a_backbone_that_is_to_be_smaller_must_be_said(tmp_path):
  arrays = {name: a for name, a in arrays_of('npz', **HYBRID).items()
            if not name.startswith('block4/unit2/')}
  loaded = read('npz', arrays, tmp_path, depth=1,
                backbone={'depths': (2, 2, 2, 1)})
  assert loaded.config.backbone.depths == (2, 2, 2, 1)
  assert 'backbone of (2, 2, 2, 1) units, width 64' in loaded.statement[1]
  with pytest.raises(ValueError, match=r'backbone: expected .*\(2, 2, 2, 2\)'):
    read('npz', arrays, tmp_path, depth=1, backbone={'depths': (2, 2, 2, 2)})


def test_a_resnet_that_lacks_units_is_an_error(tmp_path):
  config = {'variant': 'R50x1', 'num_classes': 2,
            'backbone': {'depths': (3, 4, 5, 3)}}
  shapes = tree.flatten(convert.abstract_params(
      models.parse(config), (32, 32)))
  arrays = write.to_arrays(names.FAMILIES['bit'], {
      name: np.zeros(s.shape, np.float32) for name, s in shapes.items()})
  with pytest.raises(ValueError, match=(
      r'of R50x1, but residual units \(3, 4, 5, 3\) where .* 1 more')):
    read('bit', arrays, tmp_path)


def test_a_head_that_lacks_is_said(tmp_path):
  loaded = read('npz', without(
      without(arrays_of('npz'), 'head/kernel'), 'head/bias'), tmp_path)
  assert loaded.config.num_classes == 0
  assert ('  no head in the file: 0 classes, logits are empty'
          in loaded.statement)
  with pytest.raises(ValueError, match='num_classes: expected 5, found 0'):
    convert.read(tmp_path / 'x', {'num_classes': 5})


# ----------------------------------------------------- two copies, and others


def under(prefix, arrays):
  return {prefix + name: a for name, a in arrays.items()}


@pytest.mark.parametrize(('form', 'prefixes'), [
    ('npz', ('params/', 'opt/target/')), ('npz', ('', 'ema/')),
    ('timm', ('model.', 'model_ema.')), ('timm', ('', 'ema.')),
    ('huggingface', ('model.', 'state_dict_ema.'))])
def test_the_same_parameters_twice_are_an_error_until_one_is_chosen(
    form, prefixes, tmp_path):
  arrays = arrays_of(form)
  both = {**under(prefixes[0], arrays),
          **under(prefixes[1], {n: a + 1 for n, a in arrays.items()})}
  with pytest.raises(ValueError, match='more than once') as error:
    read(form, both, tmp_path)
  for prefix in prefixes:
    assert f'prefix={prefix!r}' in str(error.value)
  first, second = (read(form, both, tmp_path, prefix=p) for p in prefixes)
  np.testing.assert_array_equal(
      second.params['cls'], first.params['cls'] + 1)
  text = '\n'.join(first.statement)
  assert f'left out: {len(arrays)} arrays that are no parameters' in text
  assert ', ...' in text
  with pytest.raises(ValueError, match="under 'x/' not those of a family"):
    read(form, both, tmp_path, prefix='x/')


def test_parameters_and_their_average_in_a_pickle_are_an_error(tmp_path):
  torch = pytest.importorskip('torch', reason='torch is not installed')
  state = {n: torch.from_numpy(a) for n, a in arrays_of('timm').items()}
  torch.save({'model': state, 'optimizer': {'lr': torch.zeros(1)},
              'model_ema': {n: t + 1 for n, t in state.items()}},
             tmp_path / 'x.pth')
  with pytest.raises(ValueError, match="prefix='model.' or prefix='model_ema"):
    convert.read(tmp_path / 'x.pth', {'num_heads': 2})
  loaded = convert.read(
      tmp_path / 'x.pth', {'num_heads': 2, 'prefix': 'model_ema.'})
  np.testing.assert_array_equal(
      loaded.params['cls'], state['cls_token'][0].numpy() + 1)


@pytest.mark.parametrize(('form', 'state'), [
    ('npz', 'opt_state/0/mu/'), ('npz', 'opt/state/'),
    ('timm', 'optimizer.exp_avg.')])
def test_the_state_of_an_optimizer_is_no_copy(form, state, tmp_path):
  arrays = arrays_of(form)
  loaded = read(form, {**under(state, arrays), **arrays}, tmp_path)
  np.testing.assert_array_equal(
      loaded.params['cls'], arrays['cls' if form == 'npz' else 'cls_token'][0])
  assert f'left out: {len(arrays)} arrays' in '\n'.join(loaded.statement)


def test_what_is_left_out_is_counted_and_the_first_are_named(tmp_path):
  arrays = {**under('params/', arrays_of('npz')),
            **{f'step{i}': np.float32(i) for i in range(6)}}
  text = '\n'.join(read('npz', arrays, tmp_path).statement)
  assert 'left out: 6 arrays' in text
  assert 'step0, step1, step2, step3, ...' in text and 'step4' not in text
  assert 'left out' not in '\n'.join(
      read('npz', arrays_of('npz'), tmp_path).statement)


# ------------------------------------------------------------- dtypes, DeiT


def test_narrowed_values_are_counted(tmp_path):
  arrays = arrays_of('npz')
  arrays['cls'] = arrays['cls'].astype(np.float64)
  text = '\n'.join(read('npz', arrays, tmp_path).statement)
  assert f'narrowed: 1 of {len(arrays)} arrays, from float64 to float32' in text


@pytest.mark.parametrize(('form', 'name'), [
    ('timm', 'dist_token'), ('timm', 'head_dist.weight'),
    ('huggingface', 'deit.embeddings.distillation_token'),
    ('huggingface', 'distillation_classifier.bias')])
def test_a_distilled_deit_is_told_what_to_take_instead(form, name, tmp_path):
  arrays = {**arrays_of(form), name: np.zeros((1, 1, 12), np.float32)}
  with pytest.raises(ValueError, match=(
      f'distilled DeiT: {name} .*a distillation token.*without distillation')):
    read(form, arrays, tmp_path)


def test_hugging_faces_deit_without_distillation_is_a_vit(tmp_path):
  arrays = arrays_of('huggingface')
  renamed = {n.replace('vit.', 'deit.', 1): a for n, a in arrays.items()}
  assert 'deit.embeddings.cls_token' in renamed
  loaded = read('huggingface', renamed, tmp_path)
  found, params = tree.flatten(loaded.params), make()
  assert all(np.array_equal(found[name], params[name]) for name in params)
  assert 'left out' not in '\n'.join(loaded.statement)


@pytest.mark.parametrize(('settings', 'words'), [
    ({'qkv_bias': False}, 'qkv without bias'),
    # As timm's no_embed_class has it: positions of the patches alone.
    ({'registers': 2, 'position_cls': False}, '2 registers'),
    ({'layer_scale': 0.1}, 'layer scale'),
    ({'position_cls': False}, 'no position of the class token'),
    ({'representation_layer': True}, 'a representation layer'),
    ({'pooling': 'average', 'pool_norm': True}, 'a norm after pooling')])
def test_what_is_not_as_in_the_plain_vit_is_said(settings, words, tmp_path):
  form = 'npz' if 'representation_layer' in settings else 'timm'
  loaded = read(form, arrays_of(form, **settings), tmp_path)
  assert words in loaded.statement[1]
  plain = read('timm', arrays_of('timm'), tmp_path)
  assert words not in plain.statement[1]
