"""A segmentation model is exported and inspected."""

import numpy as np
from PIL import Image
import pytest

from vit_jax import __main__ as main
from vit_jax.extras.serve import export

pytestmark = pytest.mark.slow  # It trains a model.


def test_inspect_draws_predictions_beside_the_masks(trained, scenes, tmp_path):
  workdir, _ = trained
  assert main.main(['inspect', f'--model={workdir}', f'--output={tmp_path}',
                    '--show=2', str(scenes / 'images' / 'val')]) == 0
  assert Image.open(tmp_path / 'segmentation.png').size[0] > 100
  assert 'next to the labels in the masks' in (
      tmp_path / 'index.html').read_text()


def test_an_export_has_the_logits_of_pixels(trained, scenes, tmp_path):
  workdir, _ = trained
  target = tmp_path / 'model.stablehlo'
  assert main.main(['export', f'--model={workdir}', '--format=jax',
                    f'--output={target}', str(scenes / 'images' / 'val')]) == 0
  images = np.zeros((2, 16, 24, 3), np.float32)
  assert export.read(target, form='jax')(images)['logits'].shape == (
      2, 16, 24, 2)
