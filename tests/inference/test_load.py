"""Loading from every format, damaged models, and names of classes."""

import dataclasses

import numpy as np
import pytest

from tests import random_models
import vit_jax


def test_log_lines_have_relative_paths(tmp_path, monkeypatch):
  # Shared notebooks and model cards should not show home directories.
  random_models.make_tiny().save(tmp_path / 'x')
  lines = []
  (tmp_path / 'x/check').mkdir()  # A prefix of the name, not a parent.
  for folder in (tmp_path, tmp_path / 'x', tmp_path / 'x/check'):
    monkeypatch.chdir(folder)
    vit_jax.load(tmp_path / 'x', log=lines.append)
  assert [line.split(':')[0] for line in lines if line[0] != ' '] == [
      'x/checkpoints/latest/0', 'checkpoints/latest/0',
      f'{tmp_path}/x/checkpoints/latest/0']


def test_a_damaged_run_is_an_error_for_every_path_to_it(tmp_path):
  random_models.make_tiny().save(tmp_path / 'x')
  step = tmp_path / 'x/checkpoints/latest/0'
  (step / 'params/_METADATA').write_text('{"tree')
  for place in (tmp_path / 'x', tmp_path / 'x/checkpoints', step):
    with pytest.raises(ValueError, match='latest/0 is damaged or incomplete: '
                       'invalid JSON'):
      vit_jax.load(place, log=None)


def test_options_are_validated_for_runs_and_weight_files(tmp_path):
  for form in ('orbax', 'npz'):
    random_models.make_tiny().save(tmp_path / form, form=form)
    loaded = vit_jax.load(
        tmp_path / form, log=None, which='latest', positions='linear')
    assert loaded.positions == 'linear'
    with pytest.raises(ValueError, match="positions is 'lanczos'.*'cubic'"):
      vit_jax.load(tmp_path / form, log=None, positions='lanczos')
    with pytest.raises(ValueError, match="'bset'. Did you mean 'best'"):
      vit_jax.load(tmp_path / form, log=None, which='bset')


def test_models_are_created_with_random_parameters(tmp_path):
  model = vit_jax.create(
      'Ti/16', depth=1, num_classes=3, resolution=(32, 48), pooling='average')
  outputs = model(np.zeros((2, 32, 48, 3), np.float32))
  assert outputs['logits'].shape == (2, 3)
  assert model.config.width == 192
  other = vit_jax.create(
      'Ti/16', depth=1, num_classes=3, resolution=(32, 48), pooling='average',
      seed=1)
  kernel = 'patches', 'kernel'
  assert not np.array_equal(*(
      m.params[kernel[0]][kernel[1]] for m in (model, other)))
  model.save(tmp_path / 'x.npz', form='npz')
  random_models.assert_same(
      vit_jax.load(tmp_path / 'x.npz', log=None).params, model.params)


NAMES = ('cat', 'dog', 'owl')
IMAGES = np.random.default_rng(1).uniform(
    -1, 1, (4, 8, 8, 3)).astype(np.float32)


@pytest.fixture(scope='module')
def model():
  return random_models.make(
      {**random_models.TINY, 'depth': 1, 'num_classes': 3}, side=8,
      labels=NAMES)


@pytest.mark.parametrize(('before', 'names', 'line', 'order'), [
    (NAMES, ('cat', 'dog', 'barn owl'), 'named by index: cat, dog, barn owl',
     [0, 1, 2]),
    (NAMES, ('owl', 'cat', 'dog'), 'reordered the outputs: owl, cat, dog',
     [2, 0, 1]),
    ((), ('a', 'b', 'c'), 'named by index: a, b, c', [0, 1, 2]),
    (NAMES, NAMES, '', [0, 1, 2])])
def test_given_names_replace_others_and_reorder_the_outputs(
    model, before, names, line, order, tmp_path):
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=before)).save(tmp_path / 'x')
  lines = []
  loaded = vit_jax.load(tmp_path / 'x', log=lines.append, labels=names)
  assert lines == list(loaded.summary) and loaded.preprocess.labels == names
  assert (f'  {line}' == lines[-1]) == bool(line)
  assert (loaded.settings['labels'] == 'given') == bool(line)
  assert any(' labels=' in text for text in lines) != bool(line)
  np.testing.assert_array_equal(
      loaded(IMAGES)['logits'], model(IMAGES)['logits'][:, order])
