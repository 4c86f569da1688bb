"""Changes of the data between two starts of a run are named with their number.

An image that was trained on is never measured on as a held-out one.
"""

import shutil

from etils import epath
import numpy as np
import pytest

from tests import in_memory
from tests import leaves
from tests import own_data
from tests import pictures
from tests import toy
from vit_jax import registry
from vit_jax.checkpoints import items
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import paths
from vit_jax.experiment import config as config_lib
from vit_jax.extras.changes import data_changes
from vit_jax.extras.changes import example_sets
from vit_jax.run import evaluate_weights
from vit_jax.run import loop
from vit_jax.run import restore

EVALS = {'test': {'split': 'test'}, 'knn': {
    'name': 'knn', 'k': 1, 'split': 'test'}}


def build(source, evals=None, **section):
  return toy.build(
      data={'source': str(source), **section}, evals=evals or EVALS,
      checkpoint={'best': 'test/loss'})


def save(experiment, workdir, examples=True):
  """Saves the checkpoint of a run that has measured."""
  with manager.Checkpoints(workdir, experiment.config.checkpoint) as to:
    to.save(
        experiment.init_state(), labels=experiment.dataset.class_names or (),
        config=config_lib.to_plain(experiment.config), progress={
            'best': 2.0, 'best_step': 0, 'evals': {
                'test/loss': 2.0, 'knn/accuracy': 1.0}},
        examples=data_changes.record(experiment).to_plain() if (
            examples) else None)


def resume(experiment, workdir):
  with manager.Checkpoints(workdir, experiment.config.checkpoint) as found:
    return restore.restore_or_init(
        experiment, found, epath.Path(workdir), None)[1]


# Images of a patient stay together, so other images are held out.
GROUPED = {'group': 'patient'}


class Table:
  """A table of images without content, whose rows may be changed."""

  def __init__(self, root, count=40):
    self.root = root
    self.rows = [[f'{i}.png', 'ab'[i % 2], ('train', 'test')[i % 4 == 3],
                  f'P{i // 2}'] for i in range(count)]

  def write(self):
    return own_data.write_table(
        self.root, 'path,label,split,patient', self.rows)


@pytest.fixture
def table(tmp_path):
  return Table(tmp_path / 'data')


def test_data_that_did_not_change_are_not_mentioned(table, tmp_path):
  save(build(table.write()), tmp_path / 'run')
  start = resume(build(table.write()), tmp_path / 'run')
  assert 'of the data' not in start.message and 'note' not in start.message
  assert start.counters.best == 2.0
  # Neither their place nor their spelling matters.
  shutil.move(table.root, tmp_path / 'moved')
  experiment = build(tmp_path / 'moved' / 'labels.csv')
  assert not data_changes.compare(
      data_changes.record(build(table.write())).to_plain(),
      data_changes.record(experiment)).text
  assert 'Changes of the data' not in resume(
      experiment, tmp_path / 'run').message


def add(rows):
  rows.append(['new.png', 'a', 'train', 'P99'])


def remove(rows):
  del rows[0]


def relabel(rows):
  for row in rows[:10]:
    row[1] = {'a': 'b', 'b': 'a'}[row[1]]


def to_train(rows):
  rows[3][2] = 'train'


@pytest.mark.parametrize(('change', 'message', 'forgotten'), [
    (add, 'train and evals.knn, fitted to: 1 image added (new.png)', {'knn'}),
    (remove, 'train and evals.knn, fitted to: 1 image removed', {'knn'}),
    (relabel, 'train and evals.knn, fitted to: 8 images with another label (',
     {'knn', 'test'}),
    (to_train, 'train and evals.knn, fitted to: 1 image added (3.png)',
     {'knn', 'test'})])
def test_a_changed_table_is_a_note_with_counts(
    table, tmp_path, change, message, forgotten):
  save(build(table.write()), tmp_path / 'run')
  change(table.rows)
  start = resume(build(table.write()), tmp_path / 'run')
  assert message in start.message
  assert ('evals.test' in start.message) == ('test' in forgotten)
  # What was measured on other images or labels is forgotten.
  assert {*start.changed_evaluators} == forgotten
  assert (start.counters.best is None) == ('test' in forgotten)
  assert {name.partition('/')[0] for name in start.counters.evals} == (
      {'test', 'knn'} - forgotten)
  # Named once: the next checkpoint stores the changed sets.
  save_again(start, tmp_path / 'again', table)
  assert 'Changes of the data' not in resume(
      build(table.write()), tmp_path / 'again').message


def save_again(start, workdir, table):
  experiment = build(table.write())
  with manager.Checkpoints(workdir, experiment.config.checkpoint) as to:
    to.save(experiment.init_state(), labels=experiment.dataset.class_names,
            config=config_lib.to_plain(experiment.config), progress={},
            examples=start.examples)


def test_a_row_moved_from_train_to_test_is_an_error(table, tmp_path):
  save(build(table.write()), tmp_path / 'run')
  table.rows[0][2] = table.rows[4][2] = 'test'
  with pytest.raises(ValueError, match=(
      r'trained on 2 of the 12 images that evals.test now holds out '
      r'\((0|4).png, (0|4).png\)')):
    resume(build(table.write()), tmp_path / 'run')


def test_groups_that_hold_out_other_images_are_an_error(tmp_path):
  table = own_data.write_table(tmp_path / 'data', 'path,label,patient', [
      f'{i}.png,{"ab"[i % 2]},P{i // 4}' for i in range(80)])
  evals = {'test': {}}
  save(build(table, evals), tmp_path / 'run')
  with pytest.raises(ValueError, match=(
      r'(?s)trained on \d+ of the 8 images that evals.test now holds out.*'
      'patient')):
    resume(build(table, evals, **GROUPED), tmp_path / 'run')


def test_an_image_that_was_trained_on_is_remembered(table, tmp_path):
  save(build(table.write()), tmp_path / 'run')
  row = table.rows.pop(0)
  start = resume(build(table.write()), tmp_path / 'run')
  save_again(start, tmp_path / 'again', table)
  table.rows.append([row[0], row[1], 'test', row[3]])
  with pytest.raises(ValueError, match='trained on 1 of the 11 images that'):
    resume(build(table.write()), tmp_path / 'again')


def test_evaluating_on_images_that_are_still_trained_on_is_no_error(
    table, tmp_path):
  save(build(table.write()), tmp_path / 'run')
  resume(build(table.write(), {
      **EVALS, 'again': {'split': 'train'}}), tmp_path / 'run')
  # Nor is a smaller part of the training images, if it was so before.
  evals = {**EVALS, 'all': {'split': 'train+test'}}
  save(build(table.write(), evals), tmp_path / 'other')
  resume(build(table.write(), evals, num_examples=20), tmp_path / 'other')


@pytest.mark.parametrize('settings', [
    {'split': 'train[:50%]'},
    *[{'exclude': 'exclude.txt'}] * leaves.has(registry.EXCLUDE)])
def test_training_images_do_not_become_held_out_by_settings(
    table, tmp_path, settings):
  save(build(table.write()), tmp_path / 'run')
  if 'exclude' in settings:
    (tmp_path / 'exclude.txt').write_text('0.png\n')
    settings = {'exclude': str(tmp_path / 'exclude.txt')}
    table.rows[0][2] = 'train'
    assert '1 image removed' in resume(
        build(table.write(), **settings), tmp_path / 'run').message
  else:
    with pytest.raises(ValueError, match=(
        'trained on 15 of the 15 images that evals.rest now holds out')):
      resume(build(table.write(), {
          **EVALS, 'rest': {'split': 'train[50%:]'}}, **settings),
             tmp_path / 'run')


def test_exchanged_sources_are_an_error(table, tmp_path):
  other = Table(tmp_path / 'other', count=12)
  for row in other.rows:
    row[0] = 'other' + row[0]
  first, second = str(table.write()), str(other.write())
  evals = lambda source: {**EVALS, 'far': {'source': source, 'split': 'train'}}
  save(build(first, evals(second)), tmp_path / 'run')
  with pytest.raises(ValueError, match='trained on 30 of the 30 images that '
                     'evals.far now holds out'):
    resume(build(second, evals(first)), tmp_path / 'run')


def test_a_checkpoint_without_sets_resumes_with_a_note(table, tmp_path):
  save(build(table.write()), tmp_path / 'run', examples=False)
  table.rows[0][2] = 'test'
  start = resume(build(table.write()), tmp_path / 'run')
  assert 'does not say which images it was trained on' in start.message
  # From then on, changes are noticed.
  assert example_sets.Record.of_plain(start.examples).train.count == 29


def test_a_finished_run_keeps_its_metrics(table, tmp_path):
  experiment = toy.build(
      data={'source': str(table.write())}, evals=EVALS, total={'steps': 1},
      checkpoint={'best': 'test/loss'})
  with manager.Checkpoints(
      tmp_path / 'run', experiment.config.checkpoint) as to:
    state = experiment.init_state()
    to.save(state.replace(step=state.step + 1), labels=('a', 'b'),
            config=config_lib.to_plain(experiment.config),
            progress={'best': 2.0, 'best_step': 0},
            examples=data_changes.record(experiment).to_plain())
  table.rows[0][2] = 'test'
  table.write()
  start = resume(toy.build(
      data={'source': str(table.root / 'labels.csv')}, evals=EVALS,
      total={'steps': 1}, checkpoint={'best': 'test/loss'}), tmp_path / 'run')
  assert start.counters.best == 2.0
  assert {*start.changed_evaluators} == {'test', 'knn'}


@pytest.mark.parametrize(('target', 'rows', 'edit'), [
    ('multi', ['a|b', 'b|c', 'c', 'a'], 'a'),
    ('regression', ['0.5', '1.5', '2.5', ''], '0.25')])
def test_edited_labels_of_every_kind_are_counted(
    tmp_path, target, rows, edit):
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
    table, tmp_path, monkeypatch):
  monkeypatch.setattr(example_sets, 'MAX_KEYS', 10)
  monkeypatch.setattr(example_sets, '_SAMPLE', 5)
  save(build(table.write()), tmp_path / 'run')
  assert 'Changes of the data' not in resume(
      build(table.write()), tmp_path / 'run').message
  add(table.rows)
  assert ('train and evals.knn, fitted to: 30 images became 31' in resume(
      build(table.write()), tmp_path / 'run').message)


def test_keys_and_labels_survive_the_checkpoint(table, tmp_path):
  record = data_changes.record(build(table.write()))
  save(build(table.write()), tmp_path / 'run')
  found = example_sets.Record.of_plain(items.read_examples(
      paths.find(tmp_path / 'run')))
  assert found.train.equals(record.train) and found.train.count == 30
  np.testing.assert_array_equal(found.train.labels, record.train.labels)
  assert len(items.read_examples(
      paths.find(tmp_path / 'run'))['sets']) == 2  # Train and test.


def test_evaluating_counts_images_that_were_trained_on(tmp_path, capsys):
  root = tmp_path / 'data'
  rows = []
  for i in range(40):
    pictures.save(root / f'{i}.png', pictures.picture(i, side=8))
    rows.append(f'{i}.png,{"ab"[i % 2]},P{i // 4}')
  source = str(own_data.write_table(
      root, 'path,label,patient', rows, images=False))
  experiment = toy.build(data={'source': source}, evals={'test': {}})
  loop.train(experiment, tmp_path / 'run')
  trained = {experiment.dataset.source.key(i) for i in range(36)}
  capsys.readouterr()
  weights = evaluate_weights.open_weights(tmp_path / 'run')

  def printed(*overrides):
    config = evaluate_weights.config_for(weights, overrides=overrides)
    found, _ = evaluate_weights.restore(config, weights)
    source = found.data_of('test').source
    keys = {source.key(i) for i in range(len(source))}
    return keys, ' '.join(capsys.readouterr().out.split())

  _, text = printed()
  assert 'trained on' not in text
  for change in ('data.holdout=0.5', 'data.group=patient'):
    keys, text = printed(change)
    assert keys & trained
    assert (f'note: evals.test: {len(keys & trained)} of these {len(keys)} '
            'images were trained on (') in text
  _, text = printed('evals.test.split=train')
  assert 'evals.test: 36 of these 36 images were trained on' in text


def test_a_run_on_all_images_does_not_resume_with_held_out_ones(tmp_path):
  own_data.write(tmp_path / 'all', *(
      f'{"ab"[i % 2]}/{i}.png' for i in range(60)))
  own_data.write(tmp_path / 'other', 'a/x.png', 'b/y.png')
  save(build(tmp_path / 'all', {'test': {}}, val_source=str(
      tmp_path / 'other')), tmp_path / 'run')
  with pytest.raises(ValueError, match='images that evals.test now holds out'):
    resume(build(tmp_path / 'all', {'test': {}}), tmp_path / 'run')


def test_classes_that_are_numbered_otherwise_are_no_change(
    table, tmp_path, monkeypatch):
  before = build(table.write())
  save(before, tmp_path / 'run')

  in_memory.number_classes_backwards(monkeypatch)
  resumed = resume(build(table.write()), tmp_path / 'run')
  assert resumed.examples == data_changes.record(before).to_plain()
  assert 'label' not in resumed.message and not resumed.changed_evaluators
