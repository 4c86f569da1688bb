"""A small sweep, and training that only writes a summary."""

import json
import os
import pathlib

import numpy as np
import pytest

from tests import toy


@pytest.fixture(scope='session')
def file(tmp_path_factory):
  return toy.write(
      tmp_path_factory.mktemp('config') / 'toy.py', total={'steps': 15},
      batch_size=32, model={'pooling': 'average'},
      evals={'test': {'split': 'test', 'batch_size': 120}},
      checkpoint={'every': {'percent': 100}},
      sweep={'grid': {'optimizer': {'learning_rate': [1e-6, 0.01]}},
             'held_out': 20, 'seeds': 2})


class FakeTraining:
  """Replaces training: records the names of runs and writes summaries.

  Every metric is the learning rate plus 0.1 times the seed, and 0.5 minus that
  value in the best checkpoint, if there is one. Batches of 8 diverge, and
  batches of 24 have no finite metric. `signal` is sent after the run of the
  name `signal_after`. `held` counts the experiments in memory.
  """

  def __init__(self):
    self.names, self.held, self._live = [], [], toy.Live()
    self.signal_after = self.signal = None

  def __call__(self, experiment, workdir, **_):
    from vit_jax.training import health  # Not before pytest's import hook.
    workdir = pathlib.Path(workdir)
    self.names.append(workdir.name)
    self.held.append(self._live.count_with(experiment))
    config = experiment.config
    if config.batch_size == 8:
      raise health.NonFiniteError('The loss is not finite at step 3.\nMore.')
    value = config.optimizer.learning_rate + 0.1 * config.seed
    if config.batch_size == 24:
      value = float('nan')
    summary = {'metrics': {
        f'{name}/{metric}': value for name in config.evals
        for metric in ('loss', 'accuracy', 'precision_at_1')}}
    if config.checkpoint.best:
      summary['best'] = {'metric': config.checkpoint.best, 'metrics': {
          name: 0.5 - value for name, value in summary['metrics'].items()}}
    workdir.mkdir(parents=True)
    (workdir / 'summary.json').write_text(json.dumps(summary))
    if workdir.name == self.signal_after:
      os.kill(os.getpid(), self.signal)
    return summary


@pytest.fixture
def training(monkeypatch):
  from vit_jax import run as run_lib
  fake = FakeTraining()
  monkeypatch.setattr(run_lib, 'train', fake)
  return fake


@pytest.fixture(scope='session')
def tiny_vtab(tmp_path_factory):
  """A TFDS directory with DTD, KITTI and SmallNORB of 8 x 8 pixels."""
  from PIL import Image
  import tensorflow_datasets as tfds

  from tests import pictures
  from tests import tfds_files

  features = tfds.features
  rgb, grey = (features.Image(
      shape=(None, None, channels), encoding_format='png')
               for channels in (3, 1))
  classes = lambda count: features.ClassLabel(num_classes=count)

  def png(mode, value):
    colour = value if mode == 'L' else (value, value, 0)
    return pictures.encode(Image.new(mode, (8, 8), colour))

  root = tmp_path_factory.mktemp('tfds')
  textures = [{'image': [png('RGB', 5 * (i % 47))], 'label': [i % 47]}
              for i in range(800)]
  tfds_files.write(root, 'dtd', '3.0.1',
                   {'image': rgb, 'label': classes(47)},
                   {'train': textures, 'validation': textures[:200],
                    'test': textures[:47]})
  # Three distances of a vehicle, and a person for the fourth class.
  metres = (5.0, 12.0, 40.0, 3.0)
  streets = [{'image': [png('RGB', 80 * (i % 4))],
              'objects/type': [4 if i % 4 == 3 else i % 3, 7],
              'objects/location': [1.0, 2.0, metres[i % 4], 0.0, 0.0, 1.0]}
             for i in range(800)]
  objects = features.Sequence({
      'type': classes(8),
      'location': features.Tensor(shape=(3,), dtype=np.float32)})
  tfds_files.write(root, 'kitti', '3.3.0',
                   {'image': rgb, 'objects': objects},
                   {'train': streets, 'validation': streets[:200],
                    'test': streets[:30]})
  toys = [{'image': [png('L', 10 * (i % 18))], 'image2': [png('L', 0)],
           'label_azimuth': [i % 18], 'label_elevation': [i % 9]}
          for i in range(800)]
  tfds_files.write(root, 'smallnorb', '2.0.0',
                   {'image': grey, 'image2': grey,
                    'label_azimuth': classes(18),
                    'label_elevation': classes(9)},
                   {'train': toys, 'test': toys[:400]})
  return root
