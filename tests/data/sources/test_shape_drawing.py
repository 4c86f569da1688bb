"""One drawn image: of any size, its shapes plain to see."""

import numpy as np
import pytest

from vit_jax.data.sources import shape_drawing


def _image(index, *, size=(32, 32), **settings):
  return shape_drawing.draw(0, index, size=size, **{
      'arrangement': 'scattered', 'max_others': 2, 'ink': 0.5, 'bright': False,
      **settings}).image


@pytest.mark.parametrize('size', [(32, 32), (24, 48), (65, 33), (8, 8)])
def test_any_size_can_be_drawn(size):
  image = _image(0, size=size)
  assert image.shape == (*size, 3) and image.dtype == np.uint8


def test_the_main_shape_stands_out_from_its_ground():
  spread = [np.ptp(_image(i, max_others=0).astype(float).mean(-1))
            for i in range(200)]
  assert min(spread) > 30


@pytest.mark.parametrize('arrangement', ['scattered', 'stacked'])
def test_bright_shapes_are_brighter_than_their_ground(arrangement):
  for i in range(100):
    image = _image(
        i, arrangement=arrangement, bright=True, ink=1.0).astype(float)
    edge = np.median(np.concatenate([image[0], image[-1]]))
    assert image.max() - edge > edge - image.min()
