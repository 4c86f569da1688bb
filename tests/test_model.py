"""The public model: any format in, any batch and resolution, any format out."""

import dataclasses
import pathlib
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import vit_jax
from vit_jax import model as model_lib
from vit_jax import models
from vit_jax import tree
from vit_jax.checkpoints import formats
from vit_jax.interop import preprocess as preprocess_lib
from vit_jax.models import embed

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}


def make(**settings):
  config = models.parse({**TINY, **settings} if 'name' not in settings
                        else settings)
  shapes = formats.abstract_params(config, (32, 32))
  rng = np.random.default_rng(0)
  params = jax.tree.map(
      lambda s: rng.normal(size=s.shape).astype(np.float32), shapes)
  return model_lib.Model(
      config=config, params=params, resolution=(32, 32), positions='cubic',
      preprocess=preprocess_lib.Preprocess(
          resolution=(32, 32), mean=preprocess_lib.IMAGENET_MEAN,
          std=preprocess_lib.IMAGENET_STD, keep_aspect=True, crop=0.8,
          interpolation='bicubic', labels=tuple('abcde')[:config.num_classes]))


def images(*shape):
  return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def same(a, b):
  left, right = tree.flatten(a), tree.flatten(b)
  return set(left) == set(right) and all(
      np.array_equal(left[name], right[name]) for name in left)


HYBRID = {'backbone': {'depths': (1, 2)}, 'patch': 1}
RESNET = {'name': 'resnet', 'num_classes': 5, 'backbone': {
    'depths': (1, 2), 'width': 32, 'preactivation': True}}


@pytest.mark.parametrize(('form', 'settings'), [
    (form, settings)
    for form, all_settings in {
        'npz': [{}, {'representation_layer': True}, {'pooling': 'average'},
                {'pooling': 'attention'}, HYBRID, RESNET],
        'timm': [{}, {'registers': 2, 'layer_scale': 0.1},
                 {'registers': 2, 'position_cls': False}, {'qkv_bias': False},
                 {'pooling': 'average', 'pool_norm': True,
                  'final_norm': False},
                 {'pooling': 'attention'}, {'num_classes': 0},
                 {'width': 768, 'mlp_dim': 3072, 'num_heads': 8, 'depth': 1}],
        'huggingface': [{}, {'qkv_bias': False}, {'num_classes': 0}],
        'orbax': [{}, {'num_classes': 0},
                  {'position': '2d', 'position_at': 'shared'},
                  {'axial': True, 'pooling': 'average'},
                  {'parallel': True, 'qk_norm': True, 'norm': 'rms',
                   'qkv_bias': False}, HYBRID, RESNET],
    }.items() for settings in all_settings])
def test_out_and_in_again_changes_no_bit(form, settings, tmp_path):
  model = make(**settings)
  model.save(tmp_path / 'x', form=form)
  again = vit_jax.load(tmp_path / 'x', log=None)
  assert same(again.params, model.params)
  if form != 'npz':
    assert again.config == model.config
    assert again.preprocess == model.preprocess
    assert (again.resolution, again.positions) == ((32, 32), 'cubic')
    np.testing.assert_allclose(
        again(images(2, 32, 32, 3))['logits'],
        model(images(2, 32, 32, 3))['logits'], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(('form', 'settings', 'words'), [
    ('npz', {'registers': 2}, 'registers=2'),
    ('npz', {'axial': True, 'pooling': 'average'}, 'axial=True'),
    ('npz', {'layer_scale': 0.1}, 'no place for .*attention_scale'),
    ('timm', {'representation_layer': True}, 'no place for representation'),
    ('timm', {'position_at': 'shared'}, "position_at='shared'"),
    ('npz', {'parallel': True}, 'parallel=True'),
    ('timm', {'qk_norm': True}, 'qk_norm=True'),
    ('huggingface', {'norm': 'rms'}, "norm='rms'"),
    ('huggingface', {'pooling': 'average'}, "pooling='average'"),
    ('huggingface', {'final_norm': False}, 'final_norm=False'),
    ('huggingface', {'representation_layer': True}, 'no layer before its head'),
    ('huggingface', HYBRID, 'no convolutional network')])
def test_what_a_format_cannot_say_is_an_error(form, settings, words, tmp_path):
  with pytest.raises(ValueError, match=words):
    make(**settings).save(tmp_path / 'x', form=form)
  assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
  (tmp_path / 'x').write_text('precious')
  for form in model_lib.FORMATS:
    with pytest.raises(FileExistsError, match='exists already'):
      make().save(tmp_path / 'x', form=form)
  assert (tmp_path / 'x').read_text() == 'precious'


@pytest.mark.parametrize('form', model_lib.FORMATS)
def test_a_save_that_fails_leaves_nothing(form, tmp_path, monkeypatch):
  def full(*_, **__):
    raise OSError('No space left on device')

  monkeypatch.setattr('os.rename', full)
  with pytest.raises(OSError, match='No space left'):
    make().save(tmp_path / 'folder' / 'x', form=form)
  assert not list((tmp_path / 'folder').iterdir())


def test_any_batch_and_any_resolution():
  model = make()
  outputs = model(images(3, 32, 32, 3))
  assert outputs['logits'].shape == (3, 5)
  assert outputs['representation'].shape == (3, 12)
  assert outputs['tokens'].shape == (3, 17, 12)
  assert model(images(1, 48, 16, 3))['tokens'].shape == (1, 13, 12)
  # The images do not see each other.
  np.testing.assert_allclose(
      model(images(3, 32, 32, 3)[1:2])['logits'], outputs['logits'][1:2],
      rtol=1e-5, atol=1e-5)


def test_no_image_has_no_logits():
  outputs = make()(images(0, 32, 48, 3))
  assert {name: outputs[name].shape for name in (
      'logits', 'representation', 'tokens')} == {
          'logits': (0, 5), 'representation': (0, 12), 'tokens': (0, 25, 12)}
  assert outputs['logits'].dtype == np.float32


@pytest.mark.parametrize('settings', [
    {'position': '2d', 'position_at': 'layers'}, {'position_at': 'shared'},
    {'position': 'relative', 'registers': 1},
    {'position': 'relative', 'axial': True, 'pooling': 'average'}, HYBRID,
    RESNET], ids=str)
def test_positions_of_every_kind_work_at_another_resolution(settings):
  model = make(**settings, **({} if 'name' in settings else {'depth': 1}))
  assert np.isfinite(model(images(1, 16, 48, 3))['logits']).all()


def test_resolutions_share_all_but_the_positions_and_few_are_kept():
  model = make()
  sizes = [(32, 8 * n) for n in range(1, 8)]
  seen = [model.resized_params(size) for size in sizes]
  kernels = {id(params['patches']['kernel']) for params in seen}
  assert len(kernels) == 1
  assert [len(params['positions']) for params in seen] == [
      4 * n + 1 for n in range(1, 8)]
  # The last four are there still, those before are made again.
  assert model.resized_params(sizes[-4])['positions'] is seen[-4]['positions']
  assert model.resized_params(sizes[0])['positions'] is not seen[0]['positions']


def test_a_model_with_other_parameters_does_not_remember_the_first_ones():
  model = make()
  first = model(images(1, 16, 16, 3))['logits']
  second = dataclasses.replace(model, params=jax.tree.map(
      lambda x: 2 * x, model.params))(images(1, 16, 16, 3))['logits']
  assert np.abs(first - second).max() > 1e-3


def test_the_grid_of_another_resolution_is_resized_as_the_origin_does():
  model = make()
  expected = embed.resize_positions(
      model.params['positions'], old_grid=(4, 4), new_grid=(6, 2),
      method='cubic')
  found = model_lib.resize(model.params, model.config, old=(32, 32),
                           new=(48, 16), method='cubic')['positions']
  np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(('given', 'words'), [
    (np.zeros((2, 3, 32, 32), np.float32), r'Transpose them to \(0, 2, 3, 1\)'),
    (np.zeros((32, 32, 3), np.float32), r'came as \[32, 32, 3\]'),
    (np.zeros((2, 32, 32, 3), np.uint8), 'came as uint8.*mean .*0.485'),
    (np.zeros((2, 32, 32, 3), object), 'came as object'),
    (np.full((2, 32, 32, 3), 'x'), 'came as <U1'),
    (np.zeros((1, 32, 32, 3), np.float32).tolist(),
     r'came as list. Give np.asarray\(images, np.float32\)'),
    ('x.jpg', 'array of floats, but came as str'), (None, 'came as NoneType'),
    (np.zeros((2, 30, 32, 3), np.float32), 'does not divide into patches')])
def test_images_that_are_none_are_errors(given, words):
  # Beside the checks of annotations that the tests switch on.
  with pytest.raises(ValueError, match=words):
    model_lib.Model.__call__.__wrapped__(make(), given) if hasattr(
        model_lib.Model.__call__, '__wrapped__') else make()(given)


def test_what_is_below_here_is_said_from_here(tmp_path, monkeypatch):
  # A notebook's outputs and a model card are shared; whose home it was is not.
  make().save(tmp_path / 'x')
  said = []
  (tmp_path / 'x/check').mkdir()  # Not above it: only called alike.
  for folder in (tmp_path, tmp_path / 'x', tmp_path / 'x/check'):
    monkeypatch.chdir(folder)
    vit_jax.load(tmp_path / 'x', log=said.append)
  assert [line.split(':')[0] for line in said] == [
      'x/checkpoints/latest/0', 'checkpoints/latest/0',
      f'{tmp_path}/x/checkpoints/latest/0']


def test_nothing_at_a_path_is_an_error(tmp_path):
  with pytest.raises(FileNotFoundError, match='nothing at'):
    vit_jax.load(tmp_path / 'none')


def test_a_damaged_run_is_an_error_by_every_way_to_it(tmp_path):
  make().save(tmp_path / 'x')
  step = tmp_path / 'x/checkpoints/latest/0'
  (step / 'params/_METADATA').write_text('{"tree')
  for place in (tmp_path / 'x', tmp_path / 'x/checkpoints', step):
    with pytest.raises(ValueError, match='latest/0 is damaged, or none: what '
                       'should be JSON is not'):
      vit_jax.load(place, log=None)
  shutil.rmtree(step / 'params')
  with pytest.raises(ValueError, match='latest/0 is damaged.*lacks params'):
    vit_jax.load(tmp_path / 'x', log=None)


def test_a_checkpoint_that_names_no_model_is_an_error(tmp_path):
  make().save(tmp_path / 'x')
  config = tmp_path / 'x/checkpoints/latest/0/config/metadata'
  config.write_text('{"data": {"resolution": 32}}')
  with pytest.raises(ValueError, match='has no section model'):
    vit_jax.load(tmp_path / 'x', log=None)


def test_which_checkpoint_is_checked_for_every_format(tmp_path):
  for form in model_lib.FORMATS:
    make().save(tmp_path / form, form=form)
    assert vit_jax.load(tmp_path / form, log=None, which='latest')
    with pytest.raises(ValueError, match="'bset'. Did you mean 'best'"):
      vit_jax.load(tmp_path / form, log=None, which='bset')


def test_how_positions_are_resized_can_be_said(tmp_path):
  for form in ('orbax', 'npz'):
    make().save(tmp_path / form, form=form)
    loaded = vit_jax.load(tmp_path / form, log=None, positions='linear')
    assert loaded.positions == 'linear'
    with pytest.raises(ValueError, match="positions is 'lanczos'.*'cubic'"):
      vit_jax.load(tmp_path / form, log=None, positions='lanczos')


def test_an_address_that_cannot_be_written_to_is_an_error(
    tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for form in model_lib.FORMATS:
    with pytest.raises(ValueError, match='https://host/x cannot be written to'):
      make().save('https://host/x', form=form)
  assert not list(tmp_path.iterdir())


def test_to_import_the_package_is_light():
  program = ('import sys, vit_jax; '
             'sys.exit(bool({"jax", "flax", "orbax", "numpy"} & set('
             'sys.modules)))')
  subprocess.run([sys.executable, '-c', program], check=True,
                 cwd=pathlib.Path(__file__).parents[1])
