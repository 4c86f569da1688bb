"""Command `evaluate`, on runs and on weights of other codebases."""

import dataclasses
import json

import numpy as np
from PIL import Image
import pytest
import tensorflow_datasets as tfds

from tests import pictures
from tests import tfds_files
from tests import toy
import vit_jax
from vit_jax import __main__ as main
from vit_jax import run as run_lib
from vit_jax.data.augment import ops as ops_lib
from vit_jax.experiment.config_file import read as read_config
from vit_jax.inference import load as load_lib


@pytest.fixture(scope='module')
def config_file(tmp_path_factory):
  return toy.write(
      tmp_path_factory.mktemp('config') / 'toy.py', batch_size=40,
      model={'pooling': 'average'}, data={'shapes': {
          'num_examples': 32, 'num_test_examples': 16, 'label': 'single'}},
      evals={'half': {'split': 'test[:50%]'},
             'absent': {'source': '/no/such/folder'}})


@pytest.fixture(scope='module')
def trained(config_file, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  raw = read_config(config_file)
  del raw['evals']['absent']
  run_lib.train(toy.build(**raw), workdir)
  return workdir


def evaluate(*arguments, out):
  path = out / 'figures.json'
  status = main.main(['evaluate', *map(str, arguments), f'--json={path}'])
  return status, json.loads(path.read_text()) if status == 0 else None


def test_evaluators_are_selected_by_name_or_kind(trained, tmp_path, capsys):
  status, figures = evaluate(
      f'--workdir={trained}',
      '--evaluators=half,fewshot,calibration,confusion',
      # A microbatch is smaller than the number of devices.
      '--config.batch_size=12', '--config.accumulation=12',
      '--config.evals.fewshot.shots=[1,3]', '--config.evals.fewshot.seeds=2',
      '--config.evals.confusion.split=test[:100]', out=tmp_path)
  assert status == 0
  metrics = figures['metrics']
  assert metrics['half/examples'] == 180
  assert {'fewshot/1_shot', 'fewshot/3_shot_std'} <= set(metrics)
  assert 'fewshot/5_shot' not in metrics
  counts = np.array(figures['tables']['confusion']['confusion'])
  assert counts.sum() == 100 and counts.shape == (10, 10)
  figure = trained / 'evals' / 'confusion.png'
  assert figure.read_bytes().startswith(b'\x89PNG')
  out = capsys.readouterr().out
  assert f'figure      {figure}' in out
  for name in ('confusion_mistakes', 'calibration'):
    assert (trained / 'evals' / f'{name}.png').exists()
  assert 'Classes of lowest F1' in out and ' were predicted as ' in out
  assert 'fewshot: digits test, 360 images' in out


def test_another_source_is_evaluated(trained, tmp_path):
  for i in range(12):
    pictures.save(tmp_path / f'{i}.png', pictures.picture(i, side=8))
  (tmp_path / 'all.csv').write_text('\n'.join(['path,label,split', *(
      f'{i}.png,{i % 10},{"train" if i < 10 else "test"}' for i in range(12))]))
  status, figures = evaluate(
      f'--workdir={trained}', '--evaluators=half',
      f'--source={tmp_path}/all.csv', out=tmp_path)
  assert (status, figures['metrics']['half/examples']) == (0, 2)


def test_segmentations_are_drawn(trained, tmp_path, capsys):
  status, figures = evaluate(
      f'--workdir={trained}', '--evaluators=segmentation',
      '--config.evals.segmentation.source=shapes',
      '--config.evals.segmentation.train_split=train[:30]',
      '--config.evals.segmentation.split=test[:9]',
      '--config.evals.segmentation.classes=["paper","stroke"]',
      f'--output={tmp_path}', out=tmp_path)
  assert status == 0
  assert figures['metrics']['segmentation/examples'] == 9
  assert figures['tables']['segmentation']['class_names'] == [
      'paper', 'stroke']
  path = tmp_path / 'segmentation.png'
  assert f'figure      {path}' in capsys.readouterr().out
  drawn = np.asarray(Image.open(path).convert('RGB')).reshape(-1, 3)
  blue, orange = (31, 119, 180), (255, 127, 14)
  for colour in (blue, orange):  # More than in the legend.
    assert (drawn == colour).all(-1).mean() > 0.02


def test_only_selected_evaluators_need_their_data(
    config_file, trained, tmp_path, capsys):
  shared = (f'--workdir={trained}', f'--config={config_file}')
  assert evaluate(*shared, out=tmp_path)[0] == 2
  assert '/no/such/folder' in capsys.readouterr().err
  assert evaluate(*shared, '--evaluators=half', out=tmp_path)[0] == 0


@pytest.mark.parametrize(('flags', 'words'), [
    (['--evaluators=fewshoot'], "Did you mean 'fewshot'?"),
    (['--config.evals.knn.k=3'], 'Unknown evaluator'),
    (['--evaluators=knn', '--config.evals.knn.kk=3'], 'Unknown key'),
])
def test_misspelt_names_are_errors(trained, tmp_path, capsys, flags, words):
  assert evaluate(f'--workdir={trained}', *flags, out=tmp_path)[0] == 2
  assert words in capsys.readouterr().err


@pytest.fixture(scope='module')
def foreign(trained, tmp_path_factory):
  """The weights of the run in another format."""
  path = tmp_path_factory.mktemp('foreign') / 'weights.npz'
  vit_jax.load(trained, log=None).save(path, form='npz')
  return path


def test_an_open_config_takes_the_model_of_the_weights(
    foreign, trained, tmp_path):
  status, figures = evaluate(
      f'--workdir={foreign}', '--evaluators=knn', '--config.evals.knn.k=3',
      '--config=configs/finetune.py:dataset=digits,resolution=8,batch_size=24',
      out=tmp_path)
  assert status == 0
  assert figures['metrics']['knn/examples'] == 360


def test_weights_are_evaluated_with_their_scale_of_pixels(
    one_device, trained, tmp_path, capsys):
  model = vit_jax.load(trained, log=None)
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, mean=(0.2,) * 3, ops=(
          ops_lib.Resize(shorter=9), ops_lib.CentralCrop((8, 8))))).save(
              tmp_path / 'x.npz', form='npz')
  accuracies = []
  for flags in ((), ('--config.data.mean=0.2',), ('--config.data.mean=0.5',)):
    status, figures = evaluate(
        f'--workdir={tmp_path / "x.npz"}', *flags, '--evaluators=test',
        '--config=configs/finetune.py:dataset=digits,resolution=8,batch_size=24',
        out=tmp_path)
    assert status == 0
    accuracies.append(figures['metrics']['test/loss'])
    printed = capsys.readouterr().out
    assert ('data.mean is 0.5, but' in printed) == (len(accuracies) == 3)
    assert "data.eval_ops is [{'op': 'resize'}], but `predict`" in printed
  assert accuracies[0] == accuracies[1] != accuracies[2]


@pytest.fixture
def headless(foreign, tmp_path):
  with np.load(foreign) as file:
    np.savez(tmp_path / 'headless.npz', **{
        key: array for key, array in file.items()
        if not key.startswith('head')})
  return tmp_path / 'headless.npz'


@pytest.mark.parametrize(('weights', 'source', 'words', 'evaluator'), [
    ('foreign', 'shapes', 'evaluators fewshot and knn work with any', 'knn'),
    ('headless', 'digits', 'head/dense/kernel', 'fewshot')])
def test_representations_of_weights_with_another_or_no_head_are_evaluated(
    config_file, request, tmp_path, capsys, weights, source, words, evaluator):
  path = request.getfixturevalue(weights)
  shared = (f'--workdir={path}', f'--config={config_file}',
            f'--config.data.source={source}', '--config.model.num_heads=2')
  assert evaluate(*shared, '--evaluators=half', out=tmp_path)[0] == 2
  assert words in capsys.readouterr().err
  option = {'knn': 'k=3', 'fewshot': 'shots=[2]'}[evaluator]
  status, figures = evaluate(
      *shared, f'--evaluators={evaluator}',
      f'--config.evals.{evaluator}.{option}', out=tmp_path)
  assert status == 0 and f'{evaluator}/examples' in figures['metrics']
  assert not (path.parent / 'evals').exists()


def test_data_whose_classes_have_another_order_are_an_error(
    config_file, tmp_path, capsys):
  model = load_lib.create(num_classes=10, resolution=8, **toy.CONFIG['model'])
  labels = tuple(map(str, [1, 0, *range(2, 10)]))
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=labels)).save(tmp_path / 'model')
  assert evaluate(f'--workdir={tmp_path}/model', f'--config={config_file}',
                  '--evaluators=classification', out=tmp_path)[0] == 2
  assert ("the data numbers the same classes differently: class 0 is '0' "
          "instead of '1'") in ' '.join(capsys.readouterr().err.split())


def test_the_classes_of_a_run_may_be_named_by_a_file(
    one_device, trained, tmp_path, capsys):
  path = tmp_path / 'names.txt'
  shared = (f'--workdir={trained}', '--evaluators=half', f'--labels={path}')
  path.write_text('\n'.join(map(str, range(10))))
  named, usual = (evaluate(*flags, out=tmp_path)[1]['metrics']
                  for flags in (shared, shared[:2]))
  assert named == usual
  path.write_text('\n'.join(f'digit {i}' for i in range(10)))
  assert evaluate(*shared, out=tmp_path)[0] == 2
  assert 'digit 0, digit 1' in capsys.readouterr().err


@pytest.fixture
def pets(tmp_path):
  """A model of cat, dog and emu that always predicts dog, and other data."""
  for folder, names in (('acd', ('ant', 'cat', 'dog')), ('cd', ('cat', 'dog'))):
    for name in names:
      for split in ('train', 'test'):
        path = tmp_path / folder / split / name
        for i in range(2):
          pictures.save(path / f'{i}.png', Image.new('RGB', (8, 8)))
  model = load_lib.create(num_classes=3, resolution=8, **toy.CONFIG['model'])
  model.params['head']['dense']['bias'] = np.float32([0, 1, 0])
  model.save(tmp_path / 'nameless')
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=('cat', 'dog', 'emu'))).save(tmp_path / 'model')
  config = toy.write(tmp_path / 'pets.py', batch_size=8,
                     evals={'test': {'split': 'test'}})

  def evaluate_on(folder, *flags, weights='model'):
    return evaluate(
        f'--workdir={tmp_path}/{weights}', f'--config={config}',
        f'--config.data.source={tmp_path}/{folder}', *flags, out=tmp_path)

  return evaluate_on


def test_other_classes_are_an_error_that_names_both_sides_and_shift(
    one_device, pets, capsys):
  for folder, words in (
      ('acd', 'acd test): ant, cat, dog'), ('cd', 'cd test): cat, dog')):
    assert pets(folder)[0] == 2
    error = ' '.join(capsys.readouterr().err.split())
    assert 'cat, dog, emu' in error and '--evaluators=shift' in error
    assert 'Remove it' not in error and 'without a head' not in error
    assert words in error and error.count(f'{folder} test') == 1
    assert ('evaluate --labels=FILE' in error) == (folder == 'acd')
    assert 'convert' not in error
  status, figures = pets('cd', '--evaluators=shift')
  assert status == 0 and figures['metrics']['shift/accuracy'] == 0.5
  assert pets('acd', '--evaluators=shift')[0] == 2
  assert 'has 1 class that the model lacks: ant' in capsys.readouterr().err


def test_weights_without_names_are_matched_by_index_with_one_line(
    one_device, pets, tmp_path, capsys):
  status, figures = pets('acd', weights='nameless')
  assert status == 0
  assert figures['metrics']['test/accuracy'] == pytest.approx(1 / 3)
  assert capsys.readouterr().out.count('has no class names') == 1
  assert pets('cd', weights='nameless')[0] == 2
  assert 'has 3 classes, but' in capsys.readouterr().err
  # The names of the weights may be given.
  (tmp_path / 'names.txt').write_text('cat\ndog\nant\n')
  flags = [f'--labels={tmp_path}/names.txt']
  assert pets('acd', *flags, weights='nameless')[0] == 2
  assert 'numbers the same classes' in capsys.readouterr().err
  assert main.main(['convert', f'--source={tmp_path}/nameless', *flags,
                    f'--target={tmp_path}/named', '--format=orbax']) == 0
  (tmp_path / 'names.txt').write_text('ant\ncat\ndog\n')
  status, figures = pets('acd', *flags, weights='named')
  assert status == 0
  assert figures['metrics']['test/accuracy'] == pytest.approx(1 / 3)


@pytest.fixture
def imagenet_a(tmp_path):
  """200 of 1,000 declared classes, whose images are black or white."""
  synsets = [f'n{i:08}' for i in range(1000)]
  features = {'image': tfds.features.Image(encoding_format='png'),
              'label': tfds.features.ClassLabel(names=synsets)}
  for name, labels in (('imagenet_v2/matched-frequency', [0, 999]),
                       ('imagenet_a', range(0, 1000, 5))):
    tfds_files.write(tmp_path, name, '1.0.0', features, {'test': [
        {'image': [pictures.encode(Image.new('RGB', (8, 8), 'white'))],
         'label': [label]} for label in labels]})
  model = vit_jax.create(resolution=8, **{**toy.CONFIG['model'],
                                          'num_classes': 1000})
  # Prefers class 7, which has no images, to class 5.
  bias = np.zeros(1000, np.float32)
  bias[[7, 5]] = 2, 1
  model.params['head']['dense']['bias'] = bias
  model.save(tmp_path / 'model')
  return tmp_path


def test_imagenet_a_is_evaluated_by_name_on_its_200_classes(
    imagenet_a, tmp_path, capsys):
  config = toy.write(tmp_path / 'toy.py', batch_size=40, data={
      'source': 'imagenet_v2/matched-frequency', 'split': 'test',
      'data_dir': str(imagenet_a)})
  shared = (f'--workdir={imagenet_a}/model', f'--config={config}')
  status, figures = evaluate(
      *shared, '--evaluators=imagenet_a,imagenet_v2', out=tmp_path)
  assert status == 0
  metrics = figures['metrics']
  assert metrics['imagenet_a/examples'] == 200
  assert metrics['imagenet_a/accuracy'] == pytest.approx(1 / 200)
  assert metrics['imagenet_v2/accuracy'] == 0  # Class 7 is one of them.
  assert evaluate(*shared, '--evaluators=objectnet', out=tmp_path)[0] == 2
  assert 'objectnet-1.0/images' in capsys.readouterr().err
