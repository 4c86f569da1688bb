"""`inspect` draws every figure, and a page that needs no network."""

import json
import re
import shutil

import numpy as np
from PIL import Image
import pytest

from tests import pictures
from tests import random_models
from tests import toy
import vit_jax
from vit_jax import __main__ as main
from vit_jax.extras import html_page
from vit_jax.extras.figures import attention_maps
from vit_jax.extras.figures import model_figures
from vit_jax.extras.figures import patch_features
from vit_jax.extras.figures import reconstruction as reconstruction_lib

TINY = {'width': 8, 'depth': 2, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
        'num_classes': 3}
HYBRID = {**TINY, 'patch': 1, 'backbone': {'depths': (1, 1), 'width': 32}}
RESNET = {'name': 'resnet', 'num_classes': 3, 'backbone': {
    'depths': (1, 1), 'width': 32, 'preactivation': True}}
FIGURES = {
    'filters', 'positions', 'distance', 'rollout', 'heads', 'patches',
    'strip'}


def save(folder, settings, **preprocess):
  """Saves a random model for `inspect`."""
  model = random_models.make(settings, side=16, **preprocess)
  model.save(folder / 'model')
  return model


def inspect(folder, *arguments):
  """Runs the command and returns its status."""
  return main.main(['inspect', f'--model={folder}/model', *map(str, arguments)])


def drawn(folder):
  """Returns the names of figures that are not blank."""
  return {path.stem for path in folder.glob('*.png')
          if np.asarray(Image.open(path).convert('L')).std() > 5}


@pytest.fixture(scope='module', name='photos')
def _photos(tmp_path_factory):
  folder = tmp_path_factory.mktemp('photos')
  # Dollar signs do not start a formula.
  return pictures.save_all(folder, ['$c_$.png', 'a.png', 'b.png'], side=16)


@pytest.mark.parametrize(('settings', 'grid', 'patch', 'filters'), [
    (TINY, (4, 4), 4.0, 'Principal components of patches/kernel'),
    # A patch is one position of the feature map: eight pixels.
    pytest.param(
        HYBRID, (2, 2), 8.0, 'The 32 filters of backbone/root/kernel',
        marks=pytest.mark.slow)])
def test_all_figures_are_drawn_and_the_page_holds_them(
    photos, tmp_path, settings, grid, patch, filters):
  model, figures = save(tmp_path, settings), tmp_path / 'figures.json'
  assert not inspect(tmp_path, photos, '--batch-size=2', f'--json={figures}',
                     '--show=2')
  folder = tmp_path / 'model' / 'inspect'
  assert drawn(folder) == FIGURES | {'heads_2'}
  page = (folder / 'index.html').read_text()
  assert len(re.findall('src="data:image/png;base64,', page)) == 8
  assert not re.search(r'(src|href)="(?!data:)', page)
  assert filters in page and f'in patches of {patch:g} x {patch:g}' in page
  report = json.loads(figures.read_text())
  weights = model.attention([str(p) for p in sorted(photos.iterdir())])
  np.testing.assert_allclose(
      report['mean_attention_distance'],
      attention_maps.mean_distance(
          weights.swapaxes(0, 1), grid=grid, patch=(patch, patch)), rtol=1e-4)
  assert report['pictures'] == 3


@pytest.mark.slow
def test_runs_that_predict_pixels_show_reconstructions(
    photos, tmp_path, capsys):
  path = tmp_path / 'model'
  built = toy.build(data={'resolution': 16}, objective={
      'name': 'mae', 'target': 'patch', 'decoder_width': 8,
      'decoder_depth': 1, 'decoder_heads': 2})
  params = built.random_params()
  prediction = params['masked_patch']['prediction']
  prediction['kernel'] *= 0
  prediction['bias'] += 1  # The predictions are all one.
  toy.save(built, path, params=params)
  model = vit_jax.load(path, log=None)
  mean, std = (np.asarray(getattr(model.preprocess, name))
               for name in ('mean', 'std'))
  original = np.random.default_rng(0).uniform(size=(2, 16, 16, 3))
  images = ((original - mean) / std).astype(np.float32)
  same, masked, predicted = reconstruction_lib.load(model).of_images(images)
  np.testing.assert_allclose(same, original, atol=1e-6)
  hidden = (np.abs(masked - 0.5) < 1e-6).all(axis=-1)
  assert hidden.mean() == 0.75
  want = np.where(hidden[..., None], (mean + std).clip(0, 1), original)
  np.testing.assert_allclose(predicted, want, atol=1e-6)
  larger = reconstruction_lib.load(vit_jax.load(path, log=None, resolution=24))
  assert larger.preprocess == model.preprocess
  np.testing.assert_array_equal(larger.of_images(images)[2], predicted)
  assert not inspect(tmp_path, photos, '--set', 'resolution=24')
  assert 'Reconstruction' in capsys.readouterr().out
  assert 'reconstruction' in drawn(path / 'inspect')
  # Its head is not trained, although the data have classes.
  assert main.main(['predict', f'--model={path}', str(photos)]) == 2
  assert 'command or method `features`' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('channels', 'name'), [
        pytest.param(1, 'a.png', marks=pytest.mark.slow), (13, 'bands.npy')])
def test_grey_and_multichannel_images_are_supported(
    photos, tmp_path, channels, name, monkeypatch):
  monkeypatch.setattr(reconstruction_lib, 'load', lambda model: (
      reconstruction_lib.Reconstruction(
          model.preprocess, lambda images: (images.clip(0, 1),) * 3)))
  save(tmp_path, {**TINY, 'depth': 1}, channels=channels,
       mean=(0.5,) * channels, std=(0.5,) * channels)
  shutil.copy(photos / 'a.png', tmp_path)
  np.save(tmp_path / 'bands.npy', np.ones((16, 16, 13), np.uint8))
  assert not inspect(tmp_path, tmp_path / name)
  folder = tmp_path / 'model' / 'inspect'
  assert {re.sub(r'_[0-9]$', '', path.stem)
          for path in folder.glob('*.png')} == FIGURES | {'reconstruction'}
  page = (folder / 'index.html').read_text()
  assert ('Channels 1, 2 and 3 are drawn as red' in page) == (channels == 13)


@pytest.mark.parametrize(('settings', 'words'), [
    (RESNET, 'ResNet'),
    ({**TINY, 'position': 'none'}, 'adds no position embedding'),
    pytest.param({**TINY, 'axial': True, 'pooling': 'average'}, 'Axial',
                 marks=pytest.mark.slow),
])
def test_figures_that_a_model_does_not_have_are_explained(
    photos, tmp_path, capsys, settings, words):
  save(tmp_path, settings)
  assert not inspect(tmp_path, *[photos / 'a.png'] * (words == 'Axial'))
  assert words in capsys.readouterr().out


def test_missing_and_unreadable_images_are_listed(photos, tmp_path, capsys):
  save(tmp_path, {**TINY, 'depth': 1})
  (tmp_path / 'broken.png').write_bytes(b'no picture')
  figures = tmp_path / 'figures.json'
  assert inspect(tmp_path, tmp_path / 'none.png', photos / 'a.png',
                 tmp_path / 'broken.png', f'--json={figures}') == 1
  report = json.loads(figures.read_text())
  assert report['pictures'] == 1
  assert set(report['errors']) == {
      f'{tmp_path}/none.png', f'{tmp_path}/broken.png'}
  assert 'none.png: no such file' in ' '.join(capsys.readouterr().out.split())
  assert inspect(tmp_path, tmp_path / 'none.png') == 2


@pytest.mark.parametrize(('flag', 'words'), [
    ('--patch=0,1', 'must be ROW,COLUMN from 1,1 to 4,4'),
    ('--patch=2,5', "--patch is '2,5'"), ('--patch=2', "--patch is '2'"),
    ('--layer=99', "layer is 'patches:99'")])
def test_patches_and_layers_outside_the_model_are_errors(
    photos, tmp_path, capsys, flag, words):
  save(tmp_path, TINY)
  assert inspect(
      tmp_path, f'--output={tmp_path}/out', photos / 'a.png', flag) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'out').exists()  # Found before any image is read.


def test_the_chosen_patch_and_layer_are_drawn(photos, tmp_path, monkeypatch):
  model, shown = save(tmp_path, TINY), {}
  monkeypatch.setattr(
      model_figures, 'patches', lambda images, colours, cosines, path, **kwargs:
      shown.update(colours=colours, cosines=cosines, **kwargs))
  monkeypatch.setattr(html_page.Section, 'url', '')
  assert not inspect(tmp_path, photos / 'a.png', '--patch=2,4', '--layer=1')
  features = model.features([f'{photos}/a.png'], layer='patches:1')
  assert (shown['row'], shown['column']) == (1, 3)
  np.testing.assert_allclose(
      shown['colours'], patch_features.colours(features), atol=1e-5)
  np.testing.assert_allclose(shown['cosines'], patch_features.similarity(
      features, row=1, column=3), atol=1e-5)


def test_segmentations_are_drawn_beside_the_masks(tmp_path):
  save(tmp_path, {**TINY, 'decoder': {}}, labels=('a', 'b', 'c'))
  pictures.save_all(tmp_path, ['images/0.png', 'images/1.png'], side=16)
  mask = Image.fromarray(np.eye(16, dtype=np.uint8))
  pictures.save(tmp_path / 'masks/0.png', mask)
  assert not inspect(tmp_path, '--show=2', tmp_path / 'images')
  folder = tmp_path / 'model' / 'inspect'
  assert 'segmentation' in drawn(folder)
  assert 'next to the labels in the masks' in (
      folder / 'index.html').read_text()


@pytest.mark.slow
def test_a_strip_holds_the_pictures_of_all_images(
    photos, tmp_path, monkeypatch):
  save(tmp_path, TINY)
  drawn_tiles = {}
  monkeypatch.setattr(
      model_figures, 'strip', lambda tiles, path, **_: drawn_tiles.update(
          tiles))
  monkeypatch.setattr(html_page.Section, 'url', '')
  assert not inspect(tmp_path, photos)
  assert {name: len(shown) for name, shown in drawn_tiles.items()} == {
      'principal components': 6, 'attention of the heads': 2,
      'attention rollout': 3, 'similarity to one patch': 3}
