"""Weights that are part of the package load by name, and can be trained."""

import numpy as np
import pytest

import vit_jax
from vit_jax.experiment import load_config
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


@pytest.mark.parametrize(('overrides', 'side', 'patches'), [
    ((), 32, None), pytest.param(
        ('data.resolution=64',), 64, None, marks=pytest.mark.slow),
    pytest.param(
        ('data.resolution=68',), 68, 289, marks=pytest.mark.slow)])
def test_training_starts_at_the_resolution_of_the_weights(
    overrides, side, patches, capsys):
  experiment = vit_jax.build(
      'configs/finetune.py:dataset=digits,batch_size=8',
      ['init.checkpoint=photos', 'total.steps=1', *overrides])
  model = vit_jax.load('photos', log=None)
  assert experiment.config.model.width == model.config.width
  assert experiment.config.data.size == (side, side)
  assert experiment.abstract_batch['image'].shape[1:3] == (side, side)
  capsys.readouterr()
  experiment.init_state()
  printed = ' '.join(capsys.readouterr().out.split())
  assert (f'{patches} patches, but the weights were trained with 64.'
          in printed) == bool(patches)
  assert printed.count('patches, but') == bool(patches)


def test_the_datasets_of_the_paper_keep_their_resolution():
  config = load_config.load_one(
      'configs/finetune.py:dataset=cifar10', ['init.checkpoint=photos'])
  assert config.data.size == (384, 384)


def test_without_weights_the_resolution_is_a_usual_one():
  assert vit_jax.build(
      'configs/finetune.py:dataset=digits,batch_size=8',
      ['model.variant=Ti/16']).config.data.resolution == (224, 224)
