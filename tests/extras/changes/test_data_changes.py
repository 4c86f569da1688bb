"""Changes of the data between two starts of a run are named with their number.

An image that was trained on is never measured on as a held-out one.
"""

import re
import shutil

from etils import epath
import numpy as np
import pytest

from tests import leaves
from tests import own_data
from tests import pictures
from tests import toy
from vit_jax import registry
from vit_jax.checkpoints import items
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import paths
from vit_jax.extras.changes import data_changes
from vit_jax.extras.changes import example_sets
from vit_jax.run import evaluate_weights
from vit_jax.run import restore

SLOW = pytest.mark.slow  # It builds a run again.
EVALS = {'test': {'split': 'test'}, 'knn': {
    'name': 'knn', 'k': 1, 'split': 'test'}}


def build(source, evals=None, *, steps=2, **section):
  return toy.build(
      data={'source': str(source), **section}, evals=evals or EVALS,
      total={'steps': steps}, checkpoint={'best': 'test/loss'})


def save(experiment, workdir, *, examples='record', step=0):
  """Saves the checkpoint of a run that has measured."""
  if examples == 'record':
    examples = data_changes.record(experiment).to_plain()
  toy.save(experiment, workdir, step=step, examples=examples, progress={
      'best': 2.0, 'best_step': 0,
      'evals': {'test/loss': 2.0, 'knn/accuracy': 1.0}})


def resume(experiment, workdir):
  with manager.Checkpoints(workdir, experiment.config.checkpoint) as found:
    return restore.restore_or_init(
        experiment, found, epath.Path(workdir), None)[1]


class Run:
  """A run on a table of images without content, whose rows may be changed."""

  def __init__(self, root, count=40, prefix=''):
    self.root = root
    self.rows = [[f'{prefix}{i}.png', 'ab'[i % 2],
                  ('train', 'test')[i % 4 == 3]] for i in range(count)]

  def write(self):
    return own_data.write_table(
        self.root / 'data', 'path,label,split', self.rows)

  def build(self, evals=None, **settings):
    return build(self.write(), evals, **settings)

  def save(self, to='run', **options):
    save(self.build(), self.root / to, **options)

  def resume(self, evals=None, *, to='run', **settings):
    return resume(self.build(evals, **settings), self.root / to)


@pytest.fixture(scope='module', name='saved')
def _saved(tmp_path_factory):
  """The folder of a run that was saved, and its experiment."""
  run = Run(tmp_path_factory.mktemp('saved'))
  experiment = run.build()
  save(experiment, run.root / 'run')
  return run.root, experiment


@pytest.fixture
def run(saved, tmp_path):
  """The run that was saved, on a copy of its table, which may be changed."""
  shutil.copytree(saved[0] / 'run', tmp_path / 'run')
  return Run(tmp_path)


def test_data_that_did_not_change_are_not_mentioned(saved, run):
  start = resume(saved[1], saved[0] / 'run')
  assert 'of the data' not in start.message and 'note' not in start.message
  assert start.counters.best == 2.0
  # Neither their place nor their spelling matters.
  assert 'Changes of the data' not in run.resume().message


def add(rows):
  rows.append(['new.png', 'a', 'train'])


def remove(rows):
  del rows[0]


def relabel(rows):
  for row in rows[:10]:
    row[1] = {'a': 'b', 'b': 'a'}[row[1]]


def to_train(rows):
  rows[3][2] = 'train'


@pytest.mark.parametrize(('change', 'message', 'forgotten'), [
    pytest.param(add, '1 image added (new.png)', {'knn'}, marks=SLOW),
    (remove, '1 image removed', {'knn'}),
    (relabel, '8 images with another label (', {'knn', 'test'}),
    pytest.param(to_train, '1 image added (3.png)', {'knn', 'test'},
                 marks=SLOW)])
def test_a_changed_table_is_a_note_with_counts(run, change, message, forgotten):
  run.save('before')
  change(run.rows)
  changed = run.build()
  start = resume(changed, run.root / 'before')
  assert f'train and evals.knn, fitted to: {message}' in start.message
  assert ('evals.test' in start.message) == ('test' in forgotten)
  # What was measured on other images or labels is forgotten.
  assert {*start.changed_evaluators} == forgotten
  assert (start.counters.best is None) == ('test' in forgotten)
  assert {name.partition('/')[0] for name in start.counters.evals} == (
      {'test', 'knn'} - forgotten)
  # Named once: the next checkpoint stores the changed sets.
  save(changed, run.root / 'again', examples=start.examples)
  assert 'Changes of the data' not in resume(
      changed, run.root / 'again').message


def moved(root):
  """Two rows move from train to test."""
  run = Run(root)
  before = run.build()
  run.rows[0][2] = run.rows[4][2] = 'test'
  return before, run.build()


def halved(root):
  run = Run(root)
  return run.build(), run.build(
      {**EVALS, 'rest': {'split': 'train[50%:]'}}, split='train[:50%]')


def grouped(root):
  """Images of a patient stay together, so other images are held out."""
  table = own_data.write_table(root / 'data', 'path,label,patient', [
      f'{i}.png,{"ab"[i % 2]},P{i // 4}' for i in range(80)])
  return (build(table, {'test': {}}),
          build(table, {'test': {}}, group='patient'))


def exchanged(root):
  sources = [str(Run(root / prefix, count, prefix).write())
             for prefix, count in (('x', 40), ('y', 12))]
  return tuple(build(one, {**EVALS, 'far': {'source': other, 'split': 'train'}})
               for one, other in (sources, sources[::-1]))


def on_all(root):
  """All images are trained on, and then some are held out."""
  own_data.write(root / 'all', *(f'{"ab"[i % 2]}/{i}.png' for i in range(60)))
  own_data.write(root / 'other', 'a/x.png', 'b/y.png')
  return (build(root / 'all', {'test': {}}, val_source=str(root / 'other')),
          build(root / 'all', {'test': {}}))


@pytest.mark.parametrize(('experiments', 'words'), [
    (moved, r'2 of the 12 images that evals.test now holds out '
     r'\((0|4).png, (0|4).png\)'),
    (halved, '15 of the 15 images that evals.rest now holds out'),
    (grouped, r'\d+ of the 8 images that evals.test now holds out.*patient'),
    (exchanged, '30 of the 30 images that evals.far now holds out'),
    (on_all, 'images that evals.test now holds out')])
def test_measuring_on_images_that_were_trained_on_is_an_error(
    tmp_path, experiments, words):
  before, after = experiments(tmp_path)
  if experiments in (moved, grouped):
    save(before, tmp_path / 'run')
    with pytest.raises(ValueError, match=f'(?s)trained on .*{words}'):
      resume(after, tmp_path / 'run')
  else:  # The same message, without a checkpoint.
    plain = data_changes.record(before).to_plain()
    assert re.match(
        f'trained on .*{words}', data_changes.of_run(after, plain).problem)


def test_an_image_that_was_trained_on_is_remembered(run):
  path, label, _ = run.rows.pop(0)
  run.save('again', examples=run.resume().examples)
  run.rows.append([path, label, 'test'])
  with pytest.raises(ValueError, match='trained on 1 of the 11 images that'):
    run.resume(to='again')


def test_evaluating_on_images_that_are_still_trained_on_is_no_error(run):
  run.resume({**EVALS, 'again': {'split': 'train'}})
  # Nor is a smaller part of the training images, if it was so before.
  evals = {**EVALS, 'all': {'split': 'train+test'}}
  save(run.build(evals), run.root / 'other')
  run.resume(evals, to='other', num_examples=20)


@SLOW
@pytest.mark.skipif(
    not leaves.has(registry.EXCLUDE), reason='It excludes examples.')
def test_an_excluded_image_is_removed(run):
  (run.root / 'exclude.txt').write_text('0.png\n')
  assert '1 image removed' in run.resume(
      exclude=f'{run.root}/exclude.txt').message


@SLOW
def test_a_checkpoint_without_sets_resumes_with_a_note(run):
  run.save('old', examples=None)
  run.rows[0][2] = 'test'
  start = run.resume(to='old')
  assert 'does not say which images it was trained on' in start.message
  # From then on, changes are noticed.
  assert example_sets.Record.of_plain(start.examples).train.count == 29


def test_a_finished_run_keeps_its_metrics(run):
  run.save('finished', step=2)
  run.rows[0][2] = 'test'
  start = run.resume(to='finished')
  assert start.counters.best == 2.0
  assert {*start.changed_evaluators} == {'test', 'knn'}


@pytest.mark.parametrize(('target', 'rows', 'edit'), [
    ('multi', ['a|b', 'b|c', 'c', 'a'], 'a'),
    ('regression', ['0.5', '1.5', '2.5', ''], '0.25')])
def test_edited_labels_of_every_kind_are_counted(tmp_path, target, rows, edit):
  def examples(first):
    table = own_data.write_table(tmp_path, 'path,label,split', [
        f'{i}.png,{label},{split}' for i, label in enumerate([first, *rows])
        for split in ('train',)] + ['t.png,' + rows[0] + ',test'])
    return data_changes.record(build(
        table, {'test': {'name': 'auto'}}, target=target,
        table={'separator': '|'})).train

  before, again, after = map(examples, (rows[1], rows[1], edit))
  assert before.equals(again)
  assert not before.equals(after)
  assert len(before.relabelled(after)) == 1


def test_large_and_prepared_sets_are_compared_by_number(
    saved, run, monkeypatch):
  monkeypatch.setattr(example_sets, 'MAX_KEYS', 10)
  monkeypatch.setattr(example_sets, '_SAMPLE', 5)
  save(saved[1], run.root / 'large')
  assert 'Changes of the data' not in resume(
      saved[1], run.root / 'large').message
  add(run.rows)
  assert ('train and evals.knn, fitted to: 30 images became 31'
          in run.resume(to='large').message)


def test_keys_and_labels_survive_the_checkpoint(saved, run):
  record = data_changes.record(saved[1])
  plain = items.read_examples(paths.find(run.root / 'run'))
  assert len(plain['sets']) == 2  # Train and test.
  found = example_sets.Record.of_plain(plain).train
  assert found.equals(record.train) and found.count == 30
  np.testing.assert_array_equal(found.labels, record.train.labels)


def test_evaluating_counts_images_that_were_trained_on(tmp_path, capsys):
  source = pictures.write_table(tmp_path / 'data', 'label,patient', [
      f'{"ab"[i % 2]},P{i // 4}' for i in range(40)])
  experiment = toy.build(data={'source': str(source)}, evals={'test': {}})
  save(experiment, tmp_path / 'run')
  trained = {experiment.dataset.source.key(i) for i in range(36)}
  weights = evaluate_weights.open_weights(tmp_path / 'run')

  def printed(*overrides):
    capsys.readouterr()
    config = evaluate_weights.config_for(weights, overrides=overrides)
    found, _ = evaluate_weights.restore(config, weights)
    source = found.data_of('test').source
    keys = {source.key(i) for i in range(len(source))}
    return keys, ' '.join(capsys.readouterr().out.split())

  assert 'trained on' not in printed()[1]
  for change in (
      'data.holdout=0.5', 'data.group=patient', 'evals.test.split=train'):
    keys, text = printed(change)
    assert keys & trained
    assert (f'note: evals.test: {len(keys & trained)} of these {len(keys)} '
            'images were trained on' in text)
