"""The preprocessing of a run's evaluation is that of its model."""

import pytest

from vit_jax.weights.configs import preprocessing


@pytest.mark.parametrize(('ops', 'expected'), [
    ([{'op': 'resize'}], {}),
    ([{'op': 'resize', 'shorter': 256}, {'op': 'central_crop'}],
     {'crop': 0.875, 'keep_aspect': True}),
    ([{'op': 'resize', 'size': 256}, {'op': 'central_crop'}], {'crop': 0.875}),
    ([{'op': 'resize', 'size': [256, 320]}, {'op': 'central_crop'}],
     {'crop': 0.875}),
    ([{'op': 'resize', 'size': 224}], {})])
def test_crops_follow_from_the_operations(ops, expected):
  assert preprocessing.from_data({'resolution': 224, 'eval_ops': ops}) == {
      'resolution': 224, 'interpolation': 'bilinear', **expected}


def test_two_channels_may_share_a_mean():
  found = preprocessing.parse({
      'resolution': 32, 'channels': 2, 'mean': [0.5], 'std': 0.2})
  assert (found.mean, found.std) == ((0.5, 0.5), (0.2, 0.2))
