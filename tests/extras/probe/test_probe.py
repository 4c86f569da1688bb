"""Linear probe, compared with scikit-learn."""

import dataclasses
import re
import types

import numpy as np
import pytest
from sklearn import linear_model
from sklearn import pipeline
from sklearn import preprocessing

from tests import in_memory
from tests import toy as toy_lib
from tests.commands import test_evaluate
from vit_jax.data.splits import holdout

CLASSES, WIDTH, BLOCKS = 3, 4, 5
# Tokens of a block: class token, one register, two patches.
CLS = types.SimpleNamespace(num_layers=BLOCKS, has_cls=True, num_prefix=2)
NO_CLS = types.SimpleNamespace(num_layers=BLOCKS, has_cls=False, num_prefix=0)
PENALTIES = [1.0, 0.01]


def examples(per_class, *, seed, signal=0.6):
  """Returns the tokens of all blocks as images, and labels."""
  rng = np.random.default_rng(seed)
  labels = np.tile(np.arange(CLASSES), per_class)
  centres = np.random.default_rng(7).normal(size=(CLASSES, BLOCKS, 4, WIDTH))
  return (3 + signal * centres[labels] + rng.normal(
      size=(len(labels), BLOCKS, 4, WIDTH))).astype(np.float32), labels


TRAIN = examples(30, seed=0)
TEST = examples(20, seed=1)


def predict(params, batch, capture=False):
  tokens = batch['image'] * params['scale']
  result = {'representation': tokens[:, 0, 0]}
  return {**result, 'layers': {'after_mlp': tokens.swapaxes(0, 1)}} if (
      capture == 'tokens') else result


def evaluate(toy, train=TRAIN, test=TEST, *, model=CLS, change=None, **section):
  """Returns the result on images and labels of two splits."""
  images, labels = train
  ranks = np.array([np.sum(labels[:i] == label)
                    for i, label in enumerate(labels)], int)
  split = toy.split(images, labels, num_classes=CLASSES, ranks=ranks[None])
  splits = {'train': change(split) if change else split,
            '': toy.split(*test, num_classes=CLASSES)}
  return toy({'name': 'probe', 'penalties': PENALTIES, **section}, splits,
             model=model, predict=predict, grid=(1, 2))(toy.params)


def pooled(images, model=CLS):
  """Returns class tokens and averages of the last four blocks."""
  tokens = images[:, -4:].astype(np.float64)
  tokens = (tokens - tokens.mean(-1, keepdims=True)) / tokens.std(
      -1, keepdims=True)
  return tokens[:, :, 0], tokens[:, :, model.num_prefix:].mean(2)


def inputs(images, model=CLS):
  """Returns the features of each layers and pooling, written out."""
  cls, average = pooled(images, model)
  found = {}
  for pooling, blocks in {'cls': cls, 'average': average, 'both': cls}.items():
    extra = [average[:, 3]] if pooling == 'both' else []
    found['last', pooling] = np.hstack([blocks[:, 3], *extra])
    found['concatenated', pooling] = np.hstack([*blocks.swapaxes(0, 1), *extra])
    found['mean', pooling] = np.hstack([sum(blocks.swapaxes(0, 1)) / 4, *extra])
  return found if model.has_cls else {
      names: x for names, x in found.items() if names[1] == 'average'}


def probe(x, labels, penalty):
  return pipeline.make_pipeline(
      preprocessing.StandardScaler(), linear_model.LogisticRegression(
          C=1 / penalty / len(x), max_iter=1000)).fit(x, labels)


@pytest.mark.parametrize('model', [CLS, NO_CLS], ids=['cls', 'no cls'])
def test_the_grid_is_that_of_scikit_learn(toy, model):
  (images, labels), (test_images, test_labels) = TRAIN, TEST
  result = evaluate(toy, model=model)
  held_out = np.arange(len(labels)) // CLASSES % 5 == 4
  assert np.bincount(labels[held_out]).tolist() == [6] * CLASSES
  accuracies = {
      (names, penalty): probe(
          x[~held_out], labels[~held_out], penalty).score(
              x[held_out], labels[held_out])
      for names, x in inputs(images, model).items() for penalty in PENALTIES}
  best = max(accuracies.values())
  assert min(accuracies.values()) < best < 1
  assert result.metrics['development_accuracy'] == pytest.approx(best)
  choice = (str(result.tables['layers']), str(result.tables['pooling']))
  penalty = float(result.tables['penalty'])
  assert accuracies[choice, penalty] == best
  # All training images are fitted again.
  final = probe(inputs(images, model)[choice], labels, penalty)
  assert result.metrics['accuracy'] == pytest.approx(final.score(
      inputs(test_images, model)[choice], test_labels))
  (title, (_, rows)), = result.details
  assert '18 images' in title and rows[0][:4] == [
      *choice, final.n_features_in_, penalty]
  assert {tuple(row[:2]) for row in rows} == {names for names, _ in accuracies}


@pytest.mark.parametrize(('section', 'choice'), [
    ({'layers': ['concatenated'], 'pooling': ['both']},
     ['concatenated', 'both', 4 * WIDTH + WIDTH]),
    ({'layers': ['mean'], 'pooling': ['average']}, ['mean', 'average', WIDTH])])
def test_settings_restrict_the_grid(toy, section, choice):
  (_, (_, rows)), = evaluate(toy, **section, penalties=[0.1]).details
  assert [row[:4] for row in rows] == [[*choice, 0.1]]


def test_the_choice_ignores_test_images(toy):
  images, labels = TEST
  first = evaluate(toy)
  other = evaluate(toy, test=(images[::-1] + 1, (labels + 1) % CLASSES))
  assert other.tables == first.tables and other.details == first.details
  assert other.metrics['accuracy'] < first.metrics['accuracy']


def test_models_without_blocks_have_one_input(toy):
  images, labels = TRAIN
  for model in (None, types.SimpleNamespace(num_layers=0, has_cls=False)):
    result = evaluate(toy, model=model)
    (_, (_, rows)), = result.details
    assert [row[:3] for row in rows] == [['representation', '', WIDTH]]
  x, test_x = images[:, 0, 0], TEST[0][:, 0, 0]
  assert result.metrics['accuracy'] == pytest.approx(probe(
      x, labels, float(result.tables['penalty'])).score(test_x, TEST[1]))


class Grouped(in_memory.Numbers):
  """Ten images of each group."""

  def groups_of(self, indices):
    return (indices // 10).astype(np.uint64)


def with_source(source):
  return lambda split: dataclasses.replace(split, dataset=dataclasses.replace(
      split.dataset, source=source))


def test_groups_are_kept_whole(toy, monkeypatch):
  found, hold_out = [], holdout.hold_out
  monkeypatch.setattr(holdout, 'hold_out', lambda *args, **options: (
      found.append(hold_out(*args, **options)), found[-1])[1])
  (title, _), = evaluate(toy, change=with_source(Grouped(90))).details
  (held_out,) = found
  assert np.unique(held_out.reshape(9, 10), axis=1).shape[1] == 1
  assert f' {held_out.sum()} images' in title and 10 <= held_out.sum() <= 30


def few(count):
  return TRAIN[0][:count], TRAIN[1][:count]


@pytest.mark.parametrize(('options', 'words'), [
    ({'train': (TRAIN[0], np.eye(CLASSES, dtype=int)[TRAIN[1]])},
     'evals.test needs one label per image'),
    ({'change': lambda split: dataclasses.replace(
        split, dataset=dataclasses.replace(
            split.dataset, targets=('age', 'mass', 'x')))},
     'measures classes, but the labels of toy test are regression targets'),
    ({'change': lambda split: dataclasses.replace(
        split, dataset=dataclasses.replace(split.dataset, num_classes=4))},
     'toy test has 4 classes, but toy test has 3'),
    ({'train': few(2)}, 'has no examples of some of the 3 classes'),
    ({'train': few(12)}, 'no class of toy test has 5 images. Use a larger'),
    ({'change': with_source(type('One', (Grouped,), {
        'groups_of': lambda self, indices: 0 * indices.astype(np.uint64)})(90))
     }, 'no class of toy test has 5 images in 2 groups. Use a larger'),
    ({'train': (TRAIN[0] * np.float32(np.nan), TRAIN[1])},
     'a feature of an image of toy test is NaN'),
    ({'model': NO_CLS, 'pooling': ['cls', 'both']},
     "evals.test.pooling is ['cls', 'both'], but the model has no class token. "
     "Use ['average']."),
    ({'layers': []}, 'layers is empty'), ({'pooling': []}, 'pooling is empty'),
    ({'penalties': []}, 'penalties is empty'),
    ({'penalties': [1.0, 0.0]}, 'penalties must be above 0'),
    ({'layers': ['first']}, 'layers'),
    ({'flip': True}, 'probe does not support flip')])
def test_data_and_settings_that_do_not_suit_are_errors(toy, options, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    evaluate(toy, **options)


VIT = toy_lib.CONFIG['model']


@pytest.mark.parametrize(('model', 'layer', 'pooling'), [
    ({**VIT, 'depth': 2}, 'cls', 'cls'),
    pytest.param({**VIT, 'depth': 5, 'pooling': 'average'}, 'mean', 'average',
                 marks=pytest.mark.slow),
    pytest.param({'name': 'resnet', 'backbone': {
        'depths': (1, 1), 'width': 32}}, 'representation', 'cls',
                 marks=pytest.mark.slow)], ids=['cls', 'average', 'resnet'])
def test_the_last_block_has_the_features_of_the_model(
    model, layer, pooling, one_device, tmp_path):
  import vit_jax
  from vit_jax import data
  config = toy_lib.config(evals={'probe': {
      'name': 'probe', 'train_split': 'train[:200]', 'split': 'test[:100]',
      'layers': ['last'], 'pooling': [pooling], 'penalties': [0.01],
      'batch_size': 100}})
  built = vit_jax.build({**config, 'model': model})
  test_evaluate.save(built, tmp_path / 'run')
  model = vit_jax.load(tmp_path / 'run', log=None)
  metrics = built.evaluate('probe', model.params).metrics
  x, labels = [], []
  for split in ('train[:200]', 'test[:100]'):
    dataset = data.open_dataset(data.parse({'source': 'digits'}), split=split)
    x.append(model.features([dataset[i]['image'].repeat(3, -1)
                             for i in range(len(dataset))], layer=layer))
    labels.append([dataset[i]['label'] for i in range(len(dataset))])
  assert metrics['accuracy'] == pytest.approx(
      probe(x[0], labels[0], 0.01).score(x[1], labels[1]), abs=0.011)
  assert metrics['accuracy'] > 0.3


@pytest.mark.slow  # It trains a model.
def test_a_run_measures_its_probe(one_device, tmp_path):
  import vit_jax
  built = vit_jax.build(toy_lib.config(evals={'probe': {
      'name': 'probe', 'train_split': 'train[:100]', 'split': 'test[:50]',
      'penalties': [0.01], 'batch_size': 50}}))
  summary = vit_jax.train(built, tmp_path)['metrics']
  found = built.evaluate(
      'probe', vit_jax.load(tmp_path, log=None).params).metrics
  for name in ('accuracy', 'development_accuracy'):
    assert summary[f'probe/{name}'] == pytest.approx(found[name])
