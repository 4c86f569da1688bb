"""A run says so if its images are scaled otherwise than in pre-training."""

import pytest

from vit_jax import data
from vit_jax.run import restore


@pytest.mark.parametrize(('ours', 'trained', 'noted'), [
    (0.5, {'mean': [0.485, 0.456, 0.406]}, True),
    ((0.485, 0.456, 0.406), {'mean': [0.485, 0.456, 0.406]}, False),
    (0.5, {'mean': [0.5, 0.5, 0.5]}, False),
    (0.5, {'mean': 'measured'}, False),
    (0.5, {}, False),
    # Weights for another number of channels.
    ((0.1, 0.2), {'mean': [0.5, 0.5, 0.5]}, False)])
def test_another_mean_of_pixels_is_noted(ours, trained, noted):
  config = data.DataConfig(
      source='digits', mean=ours, channels=len(ours) if ours != 0.5 else 3)
  notes = restore.scale_notes(config, {'data': trained})
  assert notes == ([
      f'note: data.mean is {ours}, but the weights are for '
      f'{tuple(trained["mean"])}'
  ] if noted else [])
