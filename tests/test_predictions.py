"""What a notebook asks of a loaded model: classes, features, attention."""

import pathlib

import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from tests import random_models
from vit_jax import images as images_lib
from vit_jax.analysis import attention as attention_lib
from vit_jax.interop import preprocess as preprocess_lib

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}


def make(*, labels=tuple('abcde'), preprocess=None, **settings):
  return random_models.make(
      settings if 'name' in settings else {**TINY, **settings}, side=32,
      labels=labels, **(preprocess or {}))


@pytest.fixture(scope='module', name='model')
def _model():
  return make()


def pixels(seed=0, size=(32, 32)):
  return np.random.default_rng(seed).integers(
      0, 256, (*size, 3), dtype=np.uint8)


def logits(model, *pictures):
  return np.asarray(model(np.stack(
      [images_lib.read(p, model.preprocess) for p in pictures]))['logits'])


def test_a_picture_that_there_is_no_memory_for_is_one_that_cannot_be_read(
    model, monkeypatch):
  failed, read = [], images_lib.read

  def greedy(picture, preprocess):
    if isinstance(picture, str):
      raise MemoryError
    return read(picture, preprocess)

  monkeypatch.setattr(images_lib, 'read', greedy)
  batch, = images_lib.batches(
      ['large.png', pixels()], model.preprocess, size=2,
      failed=lambda picture, error: failed.append(picture))
  assert failed == ['large.png'] and batch.count == 1


def test_a_prediction_is_the_softmax_of_the_logits(model):
  got = model.predict(pixels(), 5)
  wanted = logits(model, pixels())[0]
  wanted = np.exp(wanted - wanted.max())
  wanted /= wanted.sum()
  assert list(got.classes) == list(np.argsort(-wanted))
  assert list(got.names) == ['abcde'[i] for i in got.classes]
  np.testing.assert_allclose(got.probabilities, np.sort(wanted)[::-1],
                             rtol=1e-5)


def test_of_several_labels_each_has_a_probability_of_its_own(model):
  got = model.predict(pixels(), activation='sigmoid')
  wanted = 1 / (1 + np.exp(-logits(model, pixels())[0]))
  np.testing.assert_allclose(got.probabilities, np.sort(wanted)[::-1],
                             rtol=1e-5)


def test_a_picture_is_the_same_as_path_image_array_and_floats(
    model, tmp_path: pathlib.Path):
  array = pixels()
  Image.fromarray(array).save(tmp_path / 'a.png')
  kinds = [str(tmp_path / 'a.png'), tmp_path / 'a.png', Image.fromarray(array),
           array, (array / 255).astype(np.float32)]
  first = model.predict(kinds)
  assert len({p.probabilities for p in first}) == 1
  assert model.predict(kinds[0]).classes == first[0].classes
  (globbed,) = model.predict(tmp_path.glob('*.png'))
  assert globbed.classes == first[0].classes


def test_an_array_with_transparency_is_a_picture_as_its_file_is(
    model, tmp_path: pathlib.Path):
  array = np.dstack([pixels(), pixels(1)[..., 0]])
  Image.fromarray(array).save(tmp_path / 'a.png')
  wanted = model.predict(tmp_path / 'a.png')
  assert wanted == model.predict(array)
  assert wanted == model.predict((array / 255).astype(np.float32))


def test_an_array_of_as_many_channels_as_the_models_is_one_picture():
  bands = np.zeros((8, 8, 13), np.uint8)
  assert images_lib.is_one(bands, channels=13)
  assert not images_lib.is_one(bands, channels=3)


def test_the_last_batch_may_be_smaller(model):
  pictures = [pixels(seed) for seed in range(5)]
  assert [p.classes for p in model.predict(pictures, batch_size=2)] == [
      p.classes for p in model.predict(pictures, batch_size=5)]
  np.testing.assert_allclose(
      model.features(np.stack(pictures), batch_size=2, layer='logits'),
      logits(model, *pictures), rtol=1e-4, atol=1e-5)


def test_without_names_a_class_is_its_number():
  assert set(make(labels=()).predict(pixels()).names) == {
      f'class {i}' for i in range(5)}


def test_features_are_the_named_layers(model):
  pictures = [pixels(0), pixels(1)]
  tokens = model.features(pictures, layer='tokens')
  assert tokens.shape == (2, 17, 12)
  np.testing.assert_array_equal(
      model.features(pictures, layer='cls'), tokens[:, 0])
  np.testing.assert_allclose(
      model.features(pictures, layer='mean'), tokens[:, 1:].mean(1), rtol=1e-5)
  np.testing.assert_array_equal(
      model.features(pictures), tokens[:, 0])  # What the head sees.
  assert model.features(pictures[0]).shape == (12,)


def test_the_mean_of_tokens_in_bfloat16_is_that_of_their_values(model):
  tokens = np.random.default_rng(0).normal(
      1, 1, (2, 17, 12)).astype(jnp.bfloat16)
  np.testing.assert_allclose(
      model.layer_of({'tokens': tokens}, 'mean'),
      tokens[:, 1:].astype(np.float64).mean(1), rtol=1e-5)


def test_attention_sums_to_one_and_rollout_to_one(model):
  weights = model.attention([pixels(0), pixels(1), pixels(2)], batch_size=2)
  assert weights.shape == (3, 2, 2, 17, 17)
  np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
  maps = model.rollout([pixels(0), pixels(1), pixels(2)])
  assert maps.shape == (3, 4, 4)
  np.testing.assert_allclose(maps.sum((1, 2)), 1)
  # A batch of another size is summed in another order.
  np.testing.assert_allclose(model.rollout(pixels(1)), maps[1], rtol=1e-4)


def test_a_rollout_keeps_the_attention_of_one_batch(model, monkeypatch):
  sizes = []
  rollout_map = attention_lib.rollout_map

  def counting(weights, **options):
    sizes.append(weights.shape[1])
    return rollout_map(weights, **options)

  monkeypatch.setattr(attention_lib, 'rollout_map', counting)
  model.rollout([pixels(seed) for seed in range(3)], batch_size=2)
  assert sizes == [2, 1]


def test_a_resnet_has_features_and_no_attention():
  model = make(name='resnet', num_classes=5, backbone={
      'depths': (1, 1), 'width': 32, 'preactivation': True})
  assert model.features(pixels()).ndim == 1
  with pytest.raises(ValueError, match='has no tokens, and so no attention'):
    model.attention(pixels())
  with pytest.raises(ValueError, match='no attention. Use model.features'):
    model.rollout(pixels())
  with pytest.raises(ValueError, match="Use layer='representation'"):
    model.features(pixels(), layer='mean')


def test_a_crop_keeps_the_middle():
  model = make(preprocess={'keep_aspect': True, 'crop': 0.5})
  wide = np.zeros((64, 128, 3), np.uint8)
  wide[16:48, 48:80] = 255
  seen = images_lib.show(wide, model.preprocess)
  assert seen.size == (32, 32)
  assert np.asarray(seen).mean() > 250


def test_a_rectangle_is_cut_from_any_picture():
  preprocess = preprocess_lib.Preprocess(
      resolution=(32, 64), keep_aspect=True, crop=0.9)
  for size in ((100, 50), (50, 100), (40, 300)):
    assert images_lib.show(
        pixels(size=size), preprocess).size == (64, 32)


@pytest.mark.parametrize(('picture', 'words'), [
    (np.zeros((3, 32, 32), np.uint8), r'Transpose it to \(1, 2, 0\)'),
    (np.full((32, 32, 3), 7.0), 'from 7 to 7. Divide it by 255'),
    (np.full((32, 32, 3), np.nan), 'from nan to nan'),
    (np.zeros((32, 32, 3), np.int32), 'came as int32'),
    (np.zeros((32, 32, 3), np.uint16), 'array / 65535'),
])
def test_arrays_that_are_no_pictures_are_refused_in_words(
    model, picture, words):
  with pytest.raises(ValueError, match=words):
    model.predict([picture])


def test_a_picture_without_pixels_is_none(model):
  with pytest.raises(ValueError, match='has no pixels'):
    model.predict(np.zeros((0, 4, 3), np.uint8))


def test_an_array_of_paths_is_several_pictures(model, tmp_path):
  path = tmp_path / 'a.png'
  Image.fromarray(np.full((16, 16, 3), 9, np.uint8)).save(path)
  one = model.predict(path)
  for found in model.predict(np.array([str(path)] * 2)):
    assert found.names == one.names
    assert found.probabilities == pytest.approx(one.probabilities, rel=1e-5)


def test_a_pattern_is_no_file_and_what_it_is_for_is_said(model):
  with pytest.raises(FileNotFoundError, match=r'no such file.*glob\('):
    model.predict('no/such/*.png')


def test_a_file_that_is_no_picture_is_named(model, tmp_path: pathlib.Path):
  path = tmp_path / 'notes.jpg'
  path.write_text('not a picture')
  with pytest.raises(ValueError, match='notes.jpg: not an image'):
    model.predict(path)
  with pytest.raises(FileNotFoundError, match='missing.jpg'):
    model.predict(tmp_path / 'missing.jpg')
  with pytest.raises(ValueError, match='is a folder'):
    model.predict(tmp_path)


def test_what_cannot_be_asked_is_said(model):
  with pytest.raises(ValueError, match='no pictures'):
    model.predict([])
  with pytest.raises(ValueError, match='layer'):
    model.features(pixels(), layer='tokns')
  with pytest.raises(ValueError, match='top_k must be at least 1'):
    model.predict(pixels(), top_k=0)
  headless = make(num_classes=0, labels=())
  with pytest.raises(ValueError, match='has no head'):
    headless.predict(pixels())
  with pytest.raises(ValueError, match='has no head, and so no logits'):
    headless.features(pixels(), layer='logits')
  assert headless.features(pixels()).shape == (12,)
