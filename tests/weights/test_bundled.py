"""Weights that are part of the package load by name, and can be trained."""

import numpy as np
import pytest

import vit_jax
from vit_jax.weights import download


@pytest.mark.parametrize('name', download.bundled())
def test_weights_of_the_package_load_and_have_a_card(name):
  file = download.bundled()[name]
  assert file.stat().length <= 3 * 2**20
  assert len(file.with_suffix('.md').read_text()) > 500
  assert name in vit_jax.list_models()
  model = vit_jax.load(name)
  image = np.zeros((*model.resolution, 3), np.uint8)
  prediction = model.predict(image, top_k=model.config.num_classes)
  assert len({*prediction.names}) == model.config.num_classes
  assert sum(prediction.probabilities) == pytest.approx(1)


def test_a_name_wins_over_a_folder_of_the_same_name(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'photos').mkdir()
  assert vit_jax.load('photos', log=None).config.num_classes == 200
  with pytest.raises(ValueError, match='photos'):
    vit_jax.load('./photos')
