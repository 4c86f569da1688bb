"""Notes on settings of the section `data`."""

import pytest

from vit_jax import data


@pytest.mark.parametrize(('resolution', 'is_noted'), [
    (160, True), (224, False)])
def test_a_crop_for_another_resolution_is_noted(resolution, is_noted):
  config = data.parse({
      'source': 'digits', 'resolution': resolution,
      'eval_ops': [{'op': 'resize', 'shorter': 256}, {'op': 'central_crop'}]})
  note = config.crop_note()
  assert ('keeps the central 160 of them' in note) == is_noted
