"""Methods of a loaded model: predict, features, attention, rollout, call."""

import pathlib

import numpy as np
from PIL import Image
import pytest

from tests import random_models
from vit_jax.inference import images as images_lib
from vit_jax.models import positions as positions_lib


def make(*, labels=tuple('abcde'), **settings):
  return random_models.make(
      settings if 'name' in settings else {**random_models.TINY, **settings},
      side=32, labels=labels)


@pytest.fixture(scope='module', name='model')
def _model():
  return make()


def pixels(seed=0, size=(32, 32)):
  return np.random.default_rng(seed).integers(
      0, 256, (*size, 3), dtype=np.uint8)


def logits(model, *images):
  return np.asarray(model(np.stack(
      [images_lib.read(p, model.preprocess) for p in images]))['logits'])


def test_a_prediction_is_the_softmax_of_the_logits(model):
  got = model.predict(pixels(), 5)
  wanted = logits(model, pixels())[0]
  wanted = np.exp(wanted - wanted.max())
  wanted /= wanted.sum()
  assert list(got.classes) == list(np.argsort(-wanted))
  assert list(got.names) == ['abcde'[i] for i in got.classes]
  np.testing.assert_allclose(got.probabilities, np.sort(wanted)[::-1],
                             rtol=1e-5)


def test_flipped_predictions_are_those_of_the_mean_logits(model):
  mean = logits(model, pixels(), pixels()[:, ::-1]).mean(axis=0)
  for image in (pixels(), pixels()[:, ::-1]):
    got = model.predict(image, 5, flip=True)
    wanted = np.exp(mean - mean.max())
    np.testing.assert_allclose(
        got.probabilities, np.sort(wanted / wanted.sum())[::-1], rtol=1e-5)


def test_paths_pillow_images_and_arrays_give_equal_predictions(
    model, tmp_path: pathlib.Path):
  array = pixels()
  Image.fromarray(array).save(tmp_path / 'a.png')
  kinds = [str(tmp_path / 'a.png'), tmp_path / 'a.png',
           (tmp_path / 'a.png').read_bytes(), Image.fromarray(array),
           array, (array / 255).astype(np.float32)]
  first = model.predict(kinds)
  assert len({p.probabilities for p in first}) == 1
  assert model.predict(kinds[0]).classes == first[0].classes
  (globbed,) = model.predict(tmp_path.glob('*.png'))
  assert globbed.classes == first[0].classes
  translucent = Image.fromarray(np.dstack([array, pixels(1)[..., 0]]))
  translucent.save(tmp_path / 'b.png')
  assert model.predict(tmp_path / 'b.png') == model.predict(translucent)


def test_features_are_the_named_layers(model):
  images = [pixels(0), pixels(1)]
  tokens = model.features(images, layer='tokens')
  assert tokens.shape == (2, 17, 12)
  np.testing.assert_array_equal(
      model.features(images, layer='cls'), tokens[:, 0])
  np.testing.assert_allclose(
      model.features(images, layer='mean'), tokens[:, 1:].mean(1), rtol=1e-5)
  np.testing.assert_array_equal(
      model.features(images), tokens[:, 0])  # The input of the head.
  assert model.features(images[0]).shape == (12,)
  assert make(num_classes=0, labels=()).features(images).shape == (2, 12)
  # Rows of patches are rows of the image.
  np.testing.assert_array_equal(
      model.features(images, layer='patches'), tokens[:, 1:].reshape(
          2, 4, 4, 12))


def test_folders_globs_and_tables_name_several_images(model, tmp_path):
  for i in range(2):
    Image.fromarray(pixels(i)).save(tmp_path / f'{i}.png')
  (tmp_path / 't.csv').write_text('path\n1.png\n0.png\n1.png\n')
  wanted = model.features([pixels(0), pixels(1)])
  for images in (tmp_path, f'{tmp_path}/', f'{tmp_path}/*.png'):
    np.testing.assert_array_equal(model.features(images), wanted)
  np.testing.assert_array_equal(
      model.features(tmp_path / 't.csv'), wanted[::-1])
  assert len(model.predict(tmp_path)) == 2
  (tmp_path / '1.png').unlink()
  np.testing.assert_allclose(
      model.features(tmp_path), wanted[:1], rtol=1e-5, atol=1e-6)
  Image.fromarray(pixels(0)).save(tmp_path / '[a].png')
  assert model.features(tmp_path / '[a].png').ndim == 1


def test_features_of_a_layer_are_its_outputs(model):
  image = [pixels(0)]
  (_, outputs), = model.outputs(image, names=('layers',))
  layers = outputs['layers']['after_mlp']
  np.testing.assert_allclose(
      model.features(image, layer='tokens:2'), layers[1], rtol=1e-3)
  np.testing.assert_allclose(
      model.features(image, layer='patches:1').reshape(1, 16, 12),
      layers[0][:, 1:], rtol=1e-3)
  axial = make(**random_models.TINY, name='ablation', axial=True,
               pooling='average')
  assert axial.features(image, layer='patches:1').shape == (1, 4, 4, 12)


def test_attention_and_rollout_sum_to_one(model):
  weights = model.attention([pixels(0), pixels(1), pixels(2)], batch_size=2)
  assert weights.shape == (3, 2, 2, 17, 17)
  np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
  maps = model.rollout([pixels(0), pixels(1), pixels(2)])
  assert maps.shape == (3, 4, 4)
  np.testing.assert_allclose(maps.sum((1, 2)), 1)
  # A batch of another size is summed in another order.
  np.testing.assert_allclose(model.rollout(pixels(1)), maps[1], rtol=1e-4)


def test_a_resnet_has_features_but_no_attention():
  model = make(name='resnet', num_classes=5, backbone={
      'depths': (1, 1), 'width': 32, 'preactivation': True})
  assert model.features(pixels()).ndim == 1
  for function in (model.attention, model.rollout):
    with pytest.raises(ValueError, match='no attention. Use model.features'):
      function(pixels())
  for layer in ('mean', 'cls'):
    with pytest.raises(ValueError, match="Use layer='representation'"):
      model.features(pixels(), layer=layer)


def floats(*shape):
  return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def test_any_batch_size_and_resolution_is_accepted():
  model = random_models.make_tiny()
  outputs = model(floats(3, 32, 32, 3))
  assert outputs['logits'].shape == (3, 5)
  assert outputs['representation'].shape == (3, 12)
  assert outputs['tokens'].shape == (3, 17, 12)
  assert model(floats(1, 48, 16, 3))['tokens'].shape == (1, 13, 12)
  # Images are independent of each other.
  np.testing.assert_allclose(
      model(floats(3, 32, 32, 3)[[1, 1, 0]])['logits'],
      outputs['logits'][np.array([1, 1, 0])], rtol=1e-5, atol=1e-5)


def test_resolutions_share_all_parameters_but_interpolated_positions():
  model = random_models.make_tiny()
  params_for = model.params_for
  widths = 1, 4, 6
  seen = [params_for((32, 8 * n)) for n in widths]
  kernels = {id(params['patches']['kernel']) for params in seen}
  assert len(kernels) == 1
  assert [len(params['positions']) for params in seen] == [
      4 * n + 1 for n in widths]
  np.testing.assert_array_equal(
      params_for((48, 16))['positions'], positions_lib.resize_positions(
          model.params['positions'], old_grid=(4, 4), new_grid=(6, 2),
          method='cubic'))
