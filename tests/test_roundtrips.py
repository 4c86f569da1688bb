"""Our models go out in every format and come back the same to the bit.

Or they do not go out, and the words say why.
"""

import dataclasses

import einops
import numpy as np
import pytest

import vit_jax
from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax.inference import model as model_lib
from vit_jax.models import variants
from vit_jax.weights import convert
from vit_jax.weights import files
from vit_jax.weights import layout
from vit_jax.weights import names
from vit_jax.weights import open_files
from vit_jax.weights import save
from vit_jax.weights.configs import preprocessing as preprocessing_lib

# Its heads are in no table.
TINY = {'width': 12, 'depth': 3, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
NARROW = {'width': 32}  # Of a backbone: as narrow as its groups allow.


def make(resolution=(32, 32), **section):
  """Returns a model whose parameters are all different."""
  config = models.parse(section)
  rng = np.random.default_rng(0)
  params = {name: rng.normal(size=shape.shape).astype(np.float32)
            for name, shape in tree.flatten(
                convert.abstract_params(config, resolution)).items()}
  return model_lib.Model(
      config=config, params=tree.unflatten(params), resolution=resolution,
      preprocess=preprocessing_lib.Preprocess(
          resolution=resolution, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)))


def check_round_trip(model, target, form, **told):
  model.save(target, form=form)
  again = vit_jax.load(target, log=None, **told)
  before, after = tree.flatten(model.params), tree.flatten(again.params)
  assert set(after) == set(before)
  for name, array in before.items():
    assert np.asarray(after[name]).tobytes() == array.tobytes(), name
  assert schema.to_plain(again.config) == schema.to_plain(model.config)
  assert again.resolution == model.resolution
  return again


# What a library computes always; a model is of it, or has to say otherwise.
COMPUTES = {
    'npz': {}, 'orbax': {},
    'timm': {'gelu': 'exact'},
    'huggingface': {'gelu': 'exact', 'layer_norm_epsilon': 1e-12}}

SETTINGS = {
    'plain': {},
    'no classes': {'num_classes': 0},
    'registers': {'registers': 2},
    'registers without positions': {'registers': 2, 'position_cls': False},
    'layer scale': {'layer_scale': 1e-5},
    'no qkv bias': {'qkv_bias': False},
    'average': {'pooling': 'average'},
    'average beside a class token': {'pooling': 'average', 'cls': True},
    'norm after pooling': {
        'pooling': 'average', 'pool_norm': True, 'final_norm': False},
    'map': {'pooling': 'attention'},
    'representation': {'representation_layer': True},
    'no final norm': {'final_norm': False},
    'no position of the class token': {'position_cls': False},
    'no positions': {'position': 'none'},
    'patches that are not square': {'patch': (8, 4)},
    'positions in two parts': {'position': '2d'},
    'relative positions': {'position': 'relative'},
    'waves': {'position': 'sincos'},
    'positions in every layer': {'position_at': 'layers'},
    'axial': {'axial': True, 'pooling': 'average'},
}

NOT_OURS = {
    'positions in two parts': "position='2d'",
    'relative positions': "position='relative'",
    'waves': "position='sincos'",
    'positions in every layer': "position_at='layers'",
    'axial': 'axial=True'}
REFUSED = {
    'orbax': {},
    'npz': {
        **NOT_OURS,
        'registers': 'registers=2', 'registers without positions': 'registers',
        'layer scale': 'npz has no place for encoder/layers/.*_scale',
        'norm after pooling': 'npz has no place for pool_norm/'},
    'timm': {
        **NOT_OURS,
        'representation': 'timm has no place for representation/'},
    'huggingface': {
        **NOT_OURS,
        'registers': 'huggingface has no place for registers',
        'registers without positions': 'position_cls=False',
        'layer scale': 'huggingface has no place for .*_scale',
        'average': "pooling='average'",
        'average beside a class token': "pooling='average'",
        'norm after pooling': "pooling='average'",
        'map': "pooling='attention'",
        'representation': 'no layer before its head',
        'no final norm': 'final_norm=False',
        'no position of the class token': 'position_cls=False',
        'no positions': "position='none'"}}

# Names and shapes do not say everything.
TOLD = {
    ('npz', 'average beside a class token'): {'pooling': 'average'},
    ('npz', 'no final norm'): {'final_norm': False},
    ('npz', 'no positions'): {'position': 'none', 'resolution': 32},
    ('npz', 'patches that are not square'): {'resolution': (32, 32)},
}


@pytest.mark.parametrize('setting', SETTINGS)
@pytest.mark.parametrize('form', save.FORMATS)
def test_a_vit_comes_back_or_is_refused(form, setting, tmp_path):
  model = make(**{**TINY, **COMPUTES[form], **SETTINGS[setting]})
  target = tmp_path / 'x'
  if setting in REFUSED[form]:
    with pytest.raises(ValueError, match=REFUSED[form][setting]):
      model.save(target, form=form)
    assert not list(tmp_path.iterdir())
    return
  again = check_round_trip(
      model, target, form, **TOLD.get((form, setting), {}))
  if form != 'npz':  # It has no place for them.
    assert again.preprocess == model.preprocess


@pytest.mark.parametrize('form', save.FORMATS)
def test_a_grid_that_is_not_square_comes_back(form, tmp_path):
  model = make((16, 40), **TINY, **COMPUTES[form])
  told = {'resolution': (16, 40)} if form == 'npz' else {}
  check_round_trip(model, tmp_path / 'x', form, **told)


def narrow(variant):
  """Returns a section with the variant's structure and few channels."""
  backbone = variants.backbone(variant)
  backbone |= {**NARROW, 'depths': tuple(min(d, 2) for d in backbone['depths'])}
  if variants.family(variant) == 'resnet':
    return {'name': 'resnet', 'num_classes': 5, 'backbone': backbone}
  return {**TINY, 'backbone': backbone,
          'patch': variants.parse_variant(variant)[1]}


# What timm computes in a convolutional network.
TIMM_BACKBONE = {'group_norm_epsilon': 1e-5, 'std_epsilon': 0.0,
                 'variance_epsilon': 1e-8}


# Narrow and short, the others are as these.
STRUCTURES = ['R50+B/16', 'R+Ti/16', 'R50x1']


@pytest.mark.parametrize('variant', STRUCTURES)
@pytest.mark.parametrize('form', ['npz', 'timm', 'orbax'])
def test_a_convolutional_network_comes_back(form, variant, tmp_path):
  section = narrow(variant)
  if form == 'timm':
    section['backbone'] |= TIMM_BACKBONE
  if section.get('name') != 'resnet':
    section |= COMPUTES[form]
  # timm's own names of architectures say nothing of a narrow one.
  target = tmp_path / ('x.safetensors' if form == 'timm' else 'x')
  told = {}
  if form == 'timm' and '+' in variant:
    told = {'num_heads': 2}
  if section.get('name') == 'resnet' and form != 'orbax':
    told = {'resolution': 32}
  check_round_trip(make(**section), target, form, **told)


@pytest.mark.parametrize('variant', STRUCTURES)
def test_hugging_face_refuses_a_convolutional_network(variant, tmp_path):
  with pytest.raises(ValueError, match='no convolutional network'):
    make(**narrow(variant)).save(tmp_path / 'x', form='huggingface')


@pytest.mark.parametrize('variant', STRUCTURES)
def test_a_folder_of_timm_is_only_of_what_timm_can_name(variant, tmp_path):
  model = make(**{**narrow(variant), 'variant': variant})
  with pytest.raises(ValueError, match='timm has no architecture .*Write the '
                                       'weights alone'):
    model.save(tmp_path / 'x', form='timm')


@pytest.mark.parametrize(('form', 'words'), [
    ('npz', "reads back as gelu='tanh': load it with gelu='exact'"),
    ('timm', 'layer_norm_epsilon=1e-06, this model with 0.001')])
def test_what_a_format_cannot_say_is_said(form, words, tmp_path):
  model = make(**TINY, gelu='exact', layer_norm_epsilon=1e-3)
  assert any(words in note for note in model.save(tmp_path / 'x', form=form))


@pytest.mark.parametrize('form', save.FORMATS)
def test_what_comes_back_computes_the_same(form, tmp_path):
  model = make(**TINY, **COMPUTES[form])
  model.save(tmp_path / 'x', form=form)
  again = vit_jax.load(tmp_path / 'x', log=None)
  images = np.random.default_rng(1).normal(size=(2, 32, 32, 3)).astype('f')
  np.testing.assert_array_equal(
      again(images)['logits'], model(images)['logits'])


def test_labels_come_back_where_a_format_has_them(tmp_path):
  labels = ('cat', 'dog', 'eel', 'fox', 'gnu')
  model = make(**TINY)
  model = dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=labels))
  for form in ('timm', 'huggingface', 'orbax'):
    model.save(tmp_path / form, form=form)
    found = vit_jax.load(tmp_path / form, log=None).preprocess.labels
    assert found == labels


# --------------------------------------------- every published model, by shape


def zeros(shape):
  """Returns an array of any size that takes no memory."""
  return np.broadcast_to(np.float32(0), shape)


def stacked(arrays, match, **lengths):
  """Does with such arrays what `layout.to_ours` does, and copies none."""
  whole = zeros((*match.axes, *arrays[0].shape))
  if not match.layout:
    return whole
  known = {k: n for k, n in lengths.items() if k in match.layout.split('->')[0]}
  return einops.rearrange(whole, match.layout, **known)


@pytest.mark.parametrize('variant', [
    v for v in variants.PUBLISHED if not variants.settings(v)])
def test_a_published_model_is_known_by_its_names_and_shapes(
    variant, monkeypatch, tmp_path):
  section = {'variant': variant, 'num_classes': 10}
  shapes = tree.flatten(convert.abstract_params(
      models.parse(section), (224, 224)))
  monkeypatch.setattr(convert, 'abstract_params',
                      lambda config, resolution, **_: tree.unflatten(shapes))
  monkeypatch.setattr(layout, 'to_ours', stacked)
  monkeypatch.setattr(files, 'to_float32', lambda array, **_: array)
  resnet = variants.family(variant) == 'resnet'
  for family in [names.FAMILIES[name] for name in (
      ('bit', 'timm_bit') if resnet else ('npz', 'timm'))]:
    arrays = {}
    for name, shape in shapes.items():
      arrays |= layout.to_theirs(family.table, name, zeros(shape.shape))
    file = files.ArrayFile(
        path=variant, format='npz', load=arrays.get, headers={
            name: files.Header(shape=array.shape, dtype='float32')
            for name, array in arrays.items()})
    monkeypatch.setattr(open_files, 'open_weights', lambda path, file=file: file)
    # A b has the shapes of an S, and twice its heads.
    told = {'num_heads': 12} if variant[0] == 'b' else {}
    found = convert.read(tmp_path / 'x', told)
    expected = {**section, **family.settings}
    if variants.backbone(variant):
      expected['backbone'] = dict(family.backbone)
    assert found.config == models.parse(expected)
    assert (found.config.variant, found.family) == (variant, family.name)
    assert resnet or found.resolution == (224, 224)
