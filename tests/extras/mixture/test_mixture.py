"""Mixtures of datasets (`data.mixture`), and shares of classes (`sampling`)."""

import collections
import itertools

import jax
import numpy as np
import pytest

from tests import in_memory
from tests import own_data
from tests import toy
from tests.data.splits import test_groups as grouped
from vit_jax import data
from vit_jax import run as run_lib
from vit_jax.data import mixture as mixture_lib
from vit_jax.data.splits import split_strings
from vit_jax.extras.mixture import class_sampler
from vit_jax.extras.mixture import mixture

# 3 : 1, so that digits repeat and the drawings do not.
MIXTURE = {
    'mixture': [{'source': 'shapes', 'weight': 0.75},
                {'source': 'digits', 'split': 'train[:20]', 'weight': 0.25}],
    'resolution': 8, 'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}],
    'shapes': {'label': 'single', 'num_examples': 400}}


def _of(*sources, **section):
  return data.parse({**section, 'mixture': [
      {'source': str(source)} for source in sources]})


def _take(count, *, batch_size=16, seed=0, config=None, **where):
  config = config or data.parse(MIXTURE)
  batches = data.train_batches(
      config, data.open_dataset(config), seed=seed, batch_size=batch_size,
      **where)
  taken = list(itertools.islice(batches, count))
  batches.close()
  return taken


def _join(*batches):
  return jax.tree.map(lambda *rows: np.concatenate(rows), *batches)


def _draws(lengths, weights, count, *, batch_size=8):
  """Returns (source, index) of the first draws of a mixture."""
  entries = [mixture_lib.MixtureEntry(str(k), weight=weight)
             for k, weight in enumerate(weights)]
  index_of = mixture.order(entries, split_strings.Subset(tuple(
      (in_memory.Numbers(length), range(length)) for length in lengths)),
                           seed=0, batch_size=batch_size)
  starts = np.cumsum([0, *lengths])
  indices = [index_of(draw, 0) for draw in range(count)]
  sources = np.searchsorted(starts, indices, side='right') - 1
  return [(k, i - starts[k]) for k, i in zip(sources.tolist(), indices)]


# ---------------------------------------------------------------------- order


def test_processes_and_restarts_read_the_batches_of_one_process():
  whole = _take(4)
  parts = [_take(2, shards=shards, num_shards=4, start_step=2)
           for shards in ((0, 3), (1, 2))]
  rows = np.arange(16).reshape(4, 4)[[0, 3, 1, 2]].ravel()
  for batch, *both in zip(whole[2:], *parts):
    np.testing.assert_equal(
        _join(*both), {name: values[rows] for name, values in batch.items()})
  assert not np.array_equal(_take(1, seed=1)[0]['image'], whole[0]['image'])


def test_the_batch_size_does_not_change_which_images_are_seen():
  labels = [sorted(_join(*_take(32 // size, batch_size=size))['label'])
            for size in (32, 8, 1)]
  assert labels[0] == labels[1] == labels[2]


@pytest.mark.parametrize('weights', [(3, 1), (0.7, 0.1, 0.2), (1e-3, 1)])
def test_every_batch_has_each_source_in_its_share(weights):
  draws = [k for k, _ in _draws([50] * len(weights), weights, 160)]
  for n in range(0, 161, 8):
    counts = np.bincount(draws[:n], minlength=len(weights))
    expected = n * np.asarray(weights) / sum(weights)
    assert np.abs(counts - expected).max() < len(weights)


def test_mixup_pairs_images_of_the_same_and_of_different_sources():
  draws = [k for k, _ in _draws([50, 50], [1, 1], 160)]
  pairs = collections.Counter(itertools.pairwise(draws))
  assert len(pairs) == 4 and min(pairs.values()) > 20


def test_each_source_has_shuffled_epochs_of_its_own():
  draws = _draws([40, 10], [1, 1], 160)
  long, short = ([i for k, i in draws if k == source] for source in (0, 1))
  for found, length in ((long, 40), (short, 10)):
    # In draws of one batch, the end of an epoch and the next may mix.
    counts = np.bincount(found, minlength=length)
    assert counts.tolist() == [80 // length] * length
  assert sorted(long[:40]) == list(range(40)) != long[:40] != long[40:]
  # Another source changes neither the order nor the epochs of the first.
  both, three = (_draws(*args, batch_size=1) for args in (
      ([40, 10], [1, 1], 160), ([40, 7, 9], [1, 1, 2], 320)))
  assert [i for k, i in both if not k] == [i for k, i in three if not k]


def test_weighted_by_examples_an_epoch_is_every_example_once():
  draws = _draws([30, 7, 11], [None] * 3, 96)
  assert len({*draws[:48]}) == len({*draws[48:]}) == 48
  assert draws[:48] != draws[48:]


def test_the_counts_of_a_run_are_those_of_its_batches():
  config = data.parse(MIXTURE)
  dataset = data.open_dataset(config)
  source, num_shapes = dataset.source, dataset.class_names.index('0')
  labels = np.concatenate([batch['label'] for batch in _take(7)])
  assert data.images_seen(config.mixture, source, len(labels)) == {
      'shapes': (labels < num_shapes).sum(), 'digits': (
          labels >= num_shapes).sum()}
  assert data.describe_mixture(config.mixture, source, 1000) == [
      'shapes train: 400 images, 75 % of training, each seen 1.88 times',
      'digits train[:20]: 20 images, 25 % of training, each seen 12.5 times']
  assert data.images_seen((), source, 7) == {}
  # Splits of one source are counted by their names.
  parts = data.parse({'mixture': [
      {'source': 'digits', 'split': split} for split in ('train', 'test')]})
  assert data.images_seen(
      parts.mixture, data.open_dataset(parts).source, 1797) == {
          'digits train': 1437, 'digits test': 360}


@pytest.mark.slow  # It trains a model.
def test_a_run_counts_each_source_and_resumes_only_with_its_weights(tmp_path):
  def build(*weights):
    return toy.build(total={'steps': 4}, log={'every': {'steps': 2}}, data={
        'mixture': [{'source': source, 'weight': weight} for source, weight in
                    zip(('digits', 'shapes'), weights)],
        'shapes': {'label': 'single', 'num_examples': 4}})

  run_lib.train(build(3, 1), tmp_path)
  assert [(row['train/images_seen_digits'], row['train/images_seen_shapes'])
          for row in toy.rows(tmp_path)] == [(12, 4), (24, 8)]
  with pytest.raises(ValueError, match=(
      '(?s)other values of data.mixture. Use .*weight')):
    run_lib.train(build(1, 1), tmp_path)


# ---------------------------------------------------------------------- union


@pytest.fixture
def folders(tmp_path):
  """Two folders that share the class b, and the names of files."""
  for name, classes in (('one', 'ab'), ('two', 'bc')):
    own_data.write(tmp_path, *(
        f'{name}/{split}/{c}/{i}.png' for c in classes for i in range(5)
        for split in ('train', 'test')))
  return [f'{tmp_path}/{name}' for name in ('one', 'two')]


def test_classes_are_matched_by_name(folders):
  config = _of(*folders)
  train, test = (data.open_dataset(config, split=split) for split in (None, ''))
  assert train.class_names == ('a', 'b', 'c')
  for dataset, i in itertools.product((train, test), range(20)):
    name = dataset.class_names[dataset.source.label(i)]
    assert name == dataset[i]['image'].decode().split('/')[2]
    assert dataset[i]['label'] == dataset.source.label(i)
  # Files of the same name are not the same images.
  assert len({train.source.key(i) for i in range(20)}) == len(test) == 20
  assert not train.overlaps(test)
  assert f'test: {folders[0]} test + {folders[1]} test' in train.description


def _unite(*names, label):
  """Returns a mixture of two-class sources with an example in each split."""
  return mixture.unite([*map(mixture_lib.MixtureEntry, '01'[:len(names)])], {
      str(i): in_memory.opened(
          {split: ([None], [label]) for split in ('train', 'test')},
          num_classes=2, class_names=one, multi_label=isinstance(label, list))
      for i, one in enumerate(names)})


def test_labels_are_matched_by_name_or_those_of_one_source():
  mixed = _unite(('x', 'y'), ('z', 'y'), label=[0, 1])
  assert mixed.class_names == ('x', 'y', 'z') and mixed.multi_label
  assert [mixed.splits['test'].label(i) for i in (0, 1)] == [[0, 1], [2, 1]]
  assert '0 has no class names' in _unite(None, None, label=1).no_labels
  alone = _unite(None, label=1)
  assert (alone.num_classes, alone.splits['train'].label(0)) == (2, 1)


def test_images_that_are_trained_on_are_not_evaluated_on():
  digits, few = ({'source': 'digits', 'split': split}
                 for split in ('train+test', 'train[:5]'))
  mixed, alone, rare = (
      data.open_dataset(data.parse({'mixture': entries}))
      for entries in ([digits, {'source': 'shapes'}], [digits], [few]))
  assert 'of 10 classes have no image in these 5' in rare.description
  assert 'test: shapes test' in mixed.description
  assert (alone.splits, alone.eval_split) == (('train',), 'train')


def test_a_source_of_the_mixture_is_evaluated_with_its_classes():
  experiment = toy.build(
      data={'mixture': [{'source': 'digits'}, {
          'source': 'shapes', 'split': 'train[:100]'}],
            'shapes': {'label': 'single'}})
  shapes, _ = experiment.open_data('', 'shapes')
  classes = experiment.dataset.classes
  assert {*shapes.class_names} < {*classes.names}  # `shift` restricts to them.
  assert data.with_classes(shapes, classes, subset=True).source.label(
      0) == 10 + shapes.source.label(0)
  assert len(experiment.open_data('', '')[0]) == 360 + 2000


def test_folders_of_a_mixture_are_divided(tmp_path):
  own_data.write(tmp_path, *(f'{c}/{i}.png' for c in 'ab' for i in range(20)))
  config = _of(tmp_path, 'digits')
  train, test = (data.open_dataset(config, split=split) for split in (None, ''))
  assert train.num_examples == 36 + 1437 and train.held_out
  assert test.num_examples == 4 + 360


def test_without_labels_of_one_kind_a_mixture_has_none(folders, tmp_path):
  table = own_data.write_table(
      tmp_path, 'path,label', [f'{i}.png,{i}.5' for i in range(9)])
  for sources, reason in (
      ((folders[0], table), 'labels.csv looks like numbers'),
      (('shapes', 'digits'), r'different labels \(shapes: multi, digits: sin')):
    config = _of(*sources, resolution=8)
    mixed = data.open_dataset(config)
    assert mixed.is_unlabelled and mixed.num_classes == 1 and not mixed.targets
    with pytest.raises(ValueError, match=f'(?s){reason}.*such as mae'):
      data.open_dataset(config, labelled=True)
  (batch,) = _take(1, config=config)
  assert not batch['label'][batch['label'] >= 0].any()


# --------------------------------------------------------------------- errors


@pytest.mark.parametrize(('section', 'message'), [
    ({'mixture': [{'source': 'digits', 'weight': 1}, {'source': 'shapes'}]},
     'weights for some entries only .*all of them one'),
    ({'mixture': [{'source': 'digits'}] * 2}, 'repeats an entry .*Keep one'),
    ({'mixture': [{'source': './a'}, {'source': './a/', 'split': 'test'}]},
     "mixture names the same data './a' and './a/'"),
    ({'source': 'cifar10'}, "source is 'cifar10', but .*data.source=[.]$"),
    ({'split': 'test'}, "split is 'test', .*data.split=train"),
    ({'sampling': 'sqrt'}, 'data.sampling=natural')])
def test_a_mixture_chooses_the_training_images(section, message):
  with pytest.raises(ValueError, match=message):
    data.parse({'mixture': [{'source': 'digits'}], **section})


def test_settings_that_a_mixture_would_change_are_errors():
  with pytest.raises(ValueError, match=(
      r"'train\[:10%\]' is a part of data.mixture.*NAME.source=digits")):
    data.open_dataset(_of('digits', 'shapes'), split='train[:10%]')
  with pytest.raises(ValueError, match='weights of data.mixture draw'):
    toy.build(data=MIXTURE, objective={
        'name': 'supervised', 'class_weights': 'inverse'})


def test_mixtures_pass_groups_on(tmp_path):
  for name, part in (('a', slice(50)), ('b', slice(50, None))):
    grouped.write_folders(tmp_path / name, grouped.NAMES[part])
  config = data.parse({'group': grouped.PATTERN, 'mixture': [
      {'source': str(tmp_path / 'a'), 'split': 'train[:60%]'},
      {'source': str(tmp_path / 'b')}]})
  mixed = data.open_dataset(config)
  rest = data.open_dataset(
      config, source=str(tmp_path / 'a'), split='train[60%:]')
  patients = grouped.patients_of(mixed.source)
  assert not patients & grouped.patients_of(rest.source)
  groups = split_strings.groups(mixed.source)
  assert len({*groups.tolist()}) == len(patients)


def test_groups_divided_by_the_sources_of_a_mixture_are_an_error(tmp_path):
  for name in 'ab':  # Equal names of other patients, perhaps.
    own_data.write(tmp_path / name, *(
        f'{grouped.label(n)}/{n}{name}.png'
        for n in grouped.NAMES[:40 + 9 * (name == 'b')]))
  section = {'group': grouped.PATTERN, 'mixture': [
      {'source': str(tmp_path / 'a')}, {'source': str(tmp_path / 'b')}]}
  with pytest.raises(ValueError, match='groups of data.mixture have images in'):
    data.open_dataset(data.parse(section))
  opened = data.open_dataset(data.parse({**section, 'divided_groups': 'allow'}))
  assert 'groups of data.mixture' in opened.description


@pytest.mark.parametrize('sampling, shares', [
    ('balanced', [1 / 3, 1 / 3, 0, 1 / 3]),
    ('sqrt', np.sqrt([70, 25, 0, 5]) / np.sqrt([70, 25, 5]).sum())])
def test_classes_have_their_share_of_the_draws(sampling, shares):
  sampler = class_sampler.build(
      in_memory.RARE_LABELS, sampling=sampling, seed=7)
  found = np.array([sampler(draw, 0) for draw in range(10_000)])
  by_class = np.bincount(in_memory.RARE_LABELS[found], minlength=4) / len(found)
  np.testing.assert_allclose(by_class, shares, atol=0.02)
  # Within a class, examples are drawn equally often.
  times = np.bincount(found, minlength=100)
  for label in (0, 1, 3):
    mine = times[label == in_memory.RARE_LABELS]
    assert np.abs(mine - mine.mean()).max() < 5 * np.sqrt(mine.mean())


def test_the_order_of_natural_sampling_is_unchanged():
  config = data.parse({'resolution': 2, 'train_ops': []})
  batches = data.train_batches(config, in_memory.RARE, seed=7, batch_size=12)
  assert next(batches)['image'][:, 0, 0, 0].tolist() == [
      28, 84, 89, 45, 64, 81, 17, 87, 10, 78, 36, 26]
  batches.close()
