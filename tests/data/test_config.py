"""Invalid settings of the section `data` are errors."""

import re

import pytest

from vit_jax import data


@pytest.mark.parametrize('section,message', [
    ({'channels': 0}, 'channels must be at least 1'),
    ({'dtype': 'uint16'}, 'dtype uint16 needs value_range'),
    ({'value_range': [5, 5]}, 'value_range must be a lower and a higher'),
    ({'mean': [0.1, 0.2]}, 'each of the 3 channels'),
    ({'mean': 'measured'}, "mean and std must both be 'measured'"),
    ({'std': 0.0}, 'std must be above 0'),
    ({'prefetch': 0}, 'prefetch must be at least 1'),
    ({'mixup': -1.0}, 'mixup must be at least 0'),
    ({'resolution': 0}, 'size must be positive'),
    ({'channels': 13, 'train_ops': [{'op': 'vit_jax.data:Operation'}]},
     'train_ops[0]: vit_jax.data:Operation needs 8-bit grey or RGB'),
    ({'max_pixels': 0},
     'max_pixels must be at least 1 and at most 178,956,970'),
    ({'num_examples': 0}, 'num_examples must be at least 1'),
    ({'fraction': 1.5}, 'fraction must be above 0 and at most 1'),
    ({'num_examples': 5, 'fraction': 0.5}, 'Give one of them'),
])
def test_invalid_settings_are_errors(section, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    data.parse(section)


@pytest.mark.parametrize(('resolution', 'is_noted'), [
    (160, True), (224, False)])
def test_a_crop_for_another_resolution_is_noted(resolution, is_noted):
  config = data.parse({
      'source': 'digits', 'resolution': resolution,
      'eval_ops': [{'op': 'resize', 'shorter': 256}, {'op': 'central_crop'}]})
  note = config.crop_note()
  assert ('keeps the central 160 of them' in note) == is_noted
