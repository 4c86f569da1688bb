"""Zero-shot classification with text embeddings from a file."""

import json

import numpy as np
import pytest

from tests import random_models
import vit_jax
from vit_jax import __main__ as main
from vit_jax.extras.zoo import zero_shot

LABELS = ('cat', 'dog', 'owl')
CLIP = {'num_classes': 6, 'stem_norm': 'tokens', 'gelu': 'quick'}
SIGLIP = {'num_classes': 0, 'pooling': 'attention'}
IMAGES = np.random.default_rng(1).uniform(
    -1, 1, (4, 32, 32, 3)).astype(np.float32)


def write(path, *, width=6, **arrays):
  texts = np.random.default_rng(0).normal(size=(3, width)).astype(np.float32)
  np.savez(path, **{'embeddings': texts, 'labels': np.array(LABELS), **arrays})
  return path


@pytest.mark.parametrize(('settings', 'arrays'), [
    (CLIP, {'width': 6}), (CLIP, {'width': 6, 'scale': 20.0}),
    pytest.param(SIGLIP, {'width': 12, 'scale': 50.0, 'bias': -9.0},
                 marks=pytest.mark.slow)])
def test_logits_are_scaled_cosines_plus_bias(settings, arrays, tmp_path):
  path = write(tmp_path / 'x.npz', **arrays)
  tower = random_models.make_tiny(**settings)
  outputs = tower(IMAGES)
  embedded = np.asarray(
      outputs['logits' if tower.config.num_classes else 'representation'])
  with np.load(path) as file:
    texts = file['embeddings']
  cosines = embedded @ texts.T / (
      np.linalg.norm(embedded, axis=1)[:, None] * np.linalg.norm(texts, axis=1))
  expected = arrays.get('scale', 100) * cosines + arrays.get('bias', 0)
  model = zero_shot.attach(tower, path)
  np.testing.assert_allclose(
      model(IMAGES)['logits'], expected, rtol=1e-4, atol=1e-4)
  assert model.preprocess.labels == LABELS
  assert model.preprocess.activation == (
      'sigmoid' if 'bias' in arrays else 'softmax')
  # A checkpoint holds the texts.
  model.save(tmp_path / 'saved')
  again = vit_jax.load(tmp_path / 'saved', log=None)
  np.testing.assert_array_equal(
      again(IMAGES)['logits'], model(IMAGES)['logits'])
  assert again.preprocess == model.preprocess
  with pytest.raises(ValueError, match='(projection|cosine_head)='):
    model.save(tmp_path / 'timm', form='timm')


@pytest.mark.slow
def test_evaluate_classifies_without_training(tmp_path, capsys):
  """Each text is the mean of the embedded images of a digit."""
  from sklearn import datasets
  digits = datasets.load_digits()
  tower = random_models.make(
      {**random_models.TINY, 'depth': 1, 'num_classes': 6}, side=8)
  tower.save(tmp_path / 'tower')
  pixels = np.repeat(digits.images[..., None] / 16, 3, -1).astype(np.float32)
  embedded = tower.features(pixels, layer='logits', batch_size=512)
  embedded /= np.linalg.norm(embedded, axis=1, keepdims=True)
  texts = np.stack([embedded[digits.target == i].mean(0) for i in range(10)])
  order = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7]
  np.savez(tmp_path / 'x.npz', embeddings=texts[order],
           labels=np.array([str(i) for i in order]))
  command = [
      'evaluate', f'--workdir={tmp_path}/tower',
      f'--text-embeddings={tmp_path}/x.npz', '--evaluators=classification',
      '--config=configs/finetune.py:dataset=digits,resolution=8,batch_size=24',
      f'--json={tmp_path}/x.json']
  assert main.main(command) == 0
  assert 'labels=' not in capsys.readouterr().out  # They are not assumed.
  figures = json.loads((tmp_path / 'x.json').read_text())
  assert figures['metrics']['classification/accuracy'] > 0.2
