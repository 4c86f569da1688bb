"""No spelling of a setting measures on images that are trained on."""

import pytest

from tests import pictures
from tests import toy
from vit_jax import data


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  root = tmp_path_factory.mktemp('images')
  for i in range(60):
    pictures.save(root / 'ab'[i % 2] / f'{i}.png', pictures.picture(i, side=8))
  return root


def build(folder, evals=None, **section):
  return toy.build(data={'source': str(folder), **section}, evals=evals or {})


def printed(capsys):
  return ' '.join(capsys.readouterr().out.split())


@pytest.mark.parametrize('spelled', [
    '{folder}', '{folder}/', '{folder}/../{name}', './{name}', '{name}'])
def test_every_spelling_of_the_training_folder_is_its_held_out_part(
    folder, spelled, monkeypatch):
  monkeypatch.chdir(folder.parent)
  source = spelled.format(folder=folder, name=folder.name)
  experiment = build(folder, {'test': {'source': source},
                              'knn': {'name': 'knn', 'source': source}})
  own = build(folder, {'test': {}})
  held_out = own.data_of('test').num_examples
  for name in ('test', 'knn'):
    assert experiment.data_of(name).split == 'test'
    assert experiment.data_of(name).num_examples == held_out < 60


def test_an_objective_without_labels_is_measured_on_any_classes(folder):
  evals = {'test': {'name': 'objective', 'source': str(folder)}}
  experiment = toy.build(objective={'name': 'masked_patch'}, evals=evals)
  params = experiment.init_state(random=True).params
  assert experiment.evaluate('test', params).metrics['loss'] > 0
  with pytest.raises(ValueError, match='other classes than the model'):
    toy.build(evals=evals)


def test_a_name_is_not_a_folder_of_that_name():
  config = data.parse({'source': 'digits'})
  assert config.own_source('digits') is None is config.own_source('')
  assert config.own_source('./digits') == './digits'


@pytest.mark.parametrize(('split', 'measured', 'noted'), [
    ('train', 'test', False), ('all', 'test', True),
    ('train + test', 'test', True), ('train[:50%]', 'train[50%:]', False),
    ('train[:50%]', 'train[40%:]', True), ('train', 'train[50%:]', True)])
def test_measuring_on_training_images_is_noted(
    folder, split, measured, noted, capsys):
  build(folder, {'test': {'split': measured}}, split=split)
  assert ('evals.test measures on images that are trained on' in printed(
      capsys)) == noted


@pytest.mark.parametrize(('split', 'noted'), [('train', False), ('all', True)])
def test_measuring_on_a_source_of_a_mixture_is_noted(
    folder, tmp_path, split, noted, capsys):
  toy.build(data={'mixture': [{'source': str(folder), 'split': split},
                              {'source': _other(tmp_path)}]},
            evals={'test': {'source': f'{folder}/'}})
  assert ('evals.test measures on images that are trained on' in printed(
      capsys)) == noted


def test_excluded_images_are_no_neighbours(folder, tmp_path):
  whole = build(folder).dataset
  keys = [whole.source.key(i) for i in range(20)]
  (tmp_path / 'exclude.txt').write_text('\n'.join(keys))
  experiment = build(
      folder, {'knn': {'name': 'knn', 'k': 1}},
      exclude=str(tmp_path / 'exclude.txt'))
  left = len(whole) - len(keys)
  assert len(experiment.dataset) == left
  assert f'with {left} of train' in experiment.describe_evaluator('knn')
  # A part that has none of them is not an error.
  rest = data.open_dataset(experiment.config.data, split='train[-5:]')
  assert len(rest) == 5


def _other(root):
  for i in range(4):
    pictures.save(root / 'other' / 'ab'[i % 2] / f'{i}.png',
                  pictures.picture(i, side=8))
  return str(root / 'other')
