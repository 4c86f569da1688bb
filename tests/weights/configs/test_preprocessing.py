"""What the formats say of images is said by ours, or refused in words."""

import numpy as np
import pytest

from vit_jax.weights.configs import preprocessing


def huggingface(image, config):
  """Does to pixels what a ViTImageProcessor does."""
  values = image.astype(np.float64)
  if config.get('do_rescale', True):
    values = values * config.get('rescale_factor', 1 / 255)
  if config.get('do_normalize', True):
    values = (values - config['image_mean']) / config['image_std']
  return values


@pytest.mark.parametrize('config', [
    {'do_rescale': False, 'image_mean': [127.5, 100., 90.],
     'image_std': [127.5, 60., 50.]},
    {'do_rescale': False, 'do_normalize': False},
    {'rescale_factor': 1 / 127.5, 'image_mean': [1., 1., 1.],
     'image_std': [1., 1., 1.]},
    {'rescale_factor': 1 / 256, 'do_normalize': False},
    {'rescale_factor': 0.00392156862745098, 'image_mean': [0.5, 0.4, 0.3],
     'image_std': [0.2, 0.3, 0.4]}])
def test_the_scale_of_pixels_is_in_mean_and_std(config):
  image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5
  found = preprocessing.from_huggingface(config)
  np.testing.assert_allclose(
      (image / 255 - found['mean']) / found['std'],
      huggingface(image, config), rtol=1e-9, atol=1e-9)


def test_the_usual_scale_leaves_mean_and_std_to_the_bit():
  config = {'rescale_factor': 0.00392156862745098,
            'image_mean': [0.485, 0.456, 0.406],
            'image_std': [0.229, 0.224, 0.225]}
  assert preprocessing.from_huggingface(config) == {
      'mean': preprocessing.IMAGENET_MEAN, 'std': preprocessing.IMAGENET_STD}


@pytest.mark.parametrize(('config', 'words'), [
    ({'resample': 5}, 'resample is 5'), ({'resample': True}, 'resample is'),
    ({'rescale_factor': 0}, 'rescale_factor must be'),
    ({'rescale_factor': '1/255'}, 'rescale_factor must be'),
    ({'rescale_offset': True}, 'offset'),
    ({'do_rescale': False}, 'no image_mean'),
    ({'image_mean': [0.5, 0.5]}, 'image_mean must be three numbers')])
def test_what_ours_cannot_say_of_hugging_faces_images_is_refused(config, words):
  with pytest.raises(ValueError, match=words):
    preprocessing.from_huggingface(config)


def test_what_is_given_is_not_asked_for():
  assert preprocessing.from_huggingface(
      {'resample': 5}, skip=['interpolation']) == {}
  assert preprocessing.from_timm({'pretrained_cfg': {
      'interpolation': 'random'}}, skip=['interpolation']) == {}
