"""A trained segmentation model: its run, its evaluation and its commands."""

import json

import numpy as np
from PIL import Image
import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax import run as run_lib
from vit_jax.inference import load as load_lib

pytestmark = pytest.mark.slow  # It trains models.

STEPS, SIZE = 40, (24, 20)


@pytest.fixture(scope='module')
def scenes(tmp_path_factory):
  """Dark images whose bright upper or lower half is class 1, and the border 9.

  Image n is n pixels wider than 20.
  """
  root = tmp_path_factory.mktemp('scenes')
  rng = np.random.default_rng(0)
  for split, count in (('train', 24), ('val', 5)):
    for folder in ('images', 'masks'):
      (root / folder / split).mkdir(parents=True)
    for n in range(count):
      mask = np.zeros((SIZE[0], SIZE[1] + n), np.uint8)
      mask[:7 + n % 5] = n % 2
      mask[7 + n % 5:] = 1 - n % 2
      pixels = 60 + 120 * mask[..., None] + rng.integers(
          0, 40, (*mask.shape, 3))
      mask[:, 0] = 9
      Image.fromarray(pixels.astype(np.uint8)).save(
          root / 'images' / split / f'{n}.png')
      Image.fromarray(mask).save(root / 'masks' / split / f'{n}.png')
  return root


def train(workdir, scenes, **changes):
  experiment = toy.build(**{
      'total': {'steps': STEPS}, 'batch_size': 8,
      'model': {'patch': 4, 'decoder': {'widths': [8], 'cells': 2}},
      'objective': {'name': 'segmentation', 'classes': ['dark', 'bright'],
                    'ignored': 9},
      'data': {'source': str(scenes), 'target': 'masks',
               'resolution': [16, 24], 'train_ops': [
          {'op': 'inception_crop', 'area': [0.5, 1.0]}, {'op': 'flip'}]},
      'optimizer': {'learning_rate': 0.01},
      'evals': {'val': {'name': 'segmentation_head', 'split': 'val',
                        'batch_size': 8, 'every': {'steps': STEPS}}},
      'checkpoint': {'every': {'steps': STEPS // 2}, 'keep': 2}, **changes})
  return run_lib.train(experiment, workdir)


@pytest.fixture(scope='module')
def trained(tmp_path_factory, scenes):
  workdir = tmp_path_factory.mktemp('run') / 'run'
  return workdir, train(workdir, scenes)


def test_pixels_are_measured_at_the_size_of_each_image(
    trained, scenes, tmp_path):
  workdir, summary = trained
  assert 0.8 < summary['metrics']['val/mean_iou'] < 0.99
  assert main.main([
      'evaluate', f'--workdir={workdir}',
      f'--json={tmp_path}/found.json']) == 0
  found = json.loads((tmp_path / 'found.json').read_text())
  counts = np.zeros((2, 2))
  model = load_lib.load(workdir, log=None)
  for n in range(5):
    mask = np.asarray(Image.open(scenes / 'masks' / 'val' / f'{n}.png'))
    predicted = model.segment(str(scenes / 'images' / 'val' / f'{n}.png'))
    assert predicted.shape == mask.shape == (SIZE[0], SIZE[1] + n)
    np.add.at(counts, (mask[:, 1:], predicted[:, 1:]), 1)  # Without borders.
  iou = np.diag(counts) / (counts.sum(0) + counts.sum(1) - np.diag(counts))
  accuracy = np.diag(counts) / counts.sum(1)
  for metrics in (summary['metrics'], found['metrics']):
    assert metrics['val/mean_iou'] == pytest.approx(iou.mean())
    assert metrics['val/mean_accuracy'] == pytest.approx(accuracy.mean())
  table = found['tables']['val']
  assert table['class_names'] == ['dark', 'bright']
  assert table['class_iou'] == pytest.approx(iou)
  assert table['class_accuracy'] == pytest.approx(accuracy)


def test_predict_writes_masks_and_overlays(trained, scenes, tmp_path, capsys):
  workdir, _ = trained
  folder, masks = scenes / 'images' / 'val', tmp_path / 'masks'
  assert main.main(['predict', f'--model={workdir}', str(folder),
                    f'--masks={masks}', f'--output={tmp_path}/shares.csv']) == 0
  assert 'share of' in capsys.readouterr().out  # The title is wrapped.
  model = load_lib.load(workdir, log=None)
  expected = model.segment(str(folder / '3.png'))
  written = Image.open(masks / 'masks' / '3.png')
  np.testing.assert_array_equal(np.asarray(written), expected)
  image = np.asarray(Image.open(folder / '3.png'), float)
  colours = np.asarray(written.convert('RGB'), float)
  np.testing.assert_allclose(
      np.asarray(Image.open(masks / 'overlays' / '3.png')),
      (image + colours) / 2, atol=1)
  rows = (tmp_path / 'shares.csv').read_text().splitlines()
  assert rows[0] == 'path,decision,dark,bright,error' and len(rows) == 6
  assert model.predict(str(folder / '3.png')).probabilities[0] == pytest.approx(
      max(np.mean(expected == 0), np.mean(expected == 1)), abs=0.05)
  mirrored = model.segment([np.asarray(Image.open(folder / '3.png'))[:, ::-1]],
                           flip=True)
  np.testing.assert_array_equal(
      mirrored[0][:, ::-1], model.segment(str(folder / '3.png'), flip=True))


def test_other_formats_and_models_have_no_decoder(trained, tmp_path):
  with pytest.raises(ValueError, match='has no parameter head/conv_1'):
    load_lib.load(trained[0], log=None).save(tmp_path / 'model.npz', form='npz')
  model = load_lib.create(num_classes=2, resolution=8, **toy.CONFIG['model'])
  with pytest.raises(ValueError, match='has no decoder'):
    model.segment(np.zeros((8, 8, 3), np.uint8))
