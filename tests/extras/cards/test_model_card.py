"""The card describes a run as text and as metadata of the Hugging Face hub."""

import copy
import dataclasses
import json
import shlex
import shutil

import markdown_it
import pytest
import yaml

from tests import toy
from vit_jax import escape
from vit_jax import objectives
from vit_jax import run as run_lib
from vit_jax.experiment import log_config
from vit_jax.extras.cards import model_card
from vit_jax.run import writer as writer_lib

CONFIG = toy.config(
    total={'steps': 4}, objective={'loss': 'sigmoid'},
    data={'split': 'train[:32]', 'train_ops': [
        {'op': 'resize'}, {'op': 'flip', 'probability': 0.3}]},
    evals={'val': {'split': 'test[:40]', 'batch_size': 40,
                   'every': {'steps': 2}}}, checkpoint={'best': 'val/loss'})


@pytest.fixture(scope='module', name='experiment')
def _experiment():
  return toy.build(**CONFIG)


@pytest.fixture(scope='module', name='workdir')
def _workdir(experiment, tmp_path_factory):
  """A finished run."""
  folder = tmp_path_factory.mktemp('runs') / 'tiny'
  run_lib.train(experiment, folder)
  return folder


def front(text):
  return yaml.safe_load(text.split('---')[1])


def summary_of(workdir, **changes):
  return {**json.loads((workdir / 'summary.json').read_text()), **changes}


@pytest.fixture
def train_again(experiment, workdir, tmp_path):
  """Returns a function that starts a copy of the run with another config."""
  def train(**changes):
    folder = shutil.copytree(workdir, tmp_path / 'copy')
    later = dataclasses.replace(experiment.config, **changes)
    run_lib.train(dataclasses.replace(experiment, config=later), folder)
    assert not list(folder.glob('*.new'))
    return (folder / 'model_card.md').read_text()
  return train


def test_a_card_holds_the_numbers_of_the_metrics(workdir):
  text = (workdir / 'model_card.md').read_text()
  rows = [row for row in writer_lib.read_rows(workdir) if 'val/accuracy' in row]
  (result,) = front(text)['model-index'][0]['results']
  assert result['dataset'] == {
      'name': 'digits', 'type': 'digits', 'split': 'test[:40]'}
  best = summary_of(workdir)['best']
  assert {metric['name']: metric['value'] for metric in result['metrics']} == {
      name: value for name, value in best['metrics'].items()
      if name != 'val/examples'}
  accuracy = f'{100 * rows[-1]["val/accuracy"]:.2f} %'
  at_best = f'{100 * best["metrics"]["val/accuracy"]:.2f} %'
  assert (f'| val | digits, split `test[:40]` | 40 | accuracy | {accuracy} | '
          f'{at_best} |') in text
  assert f'Best (step {best["step"]})' in text


def test_a_card_describes_the_recipe_and_unknown_facts(workdir):
  text = (workdir / 'model_card.md').read_text()
  for words in (
      'split `train[:32]`', '**Examples:** 32', 'random values (seed 0)',
      '4 steps on 32 images in all, batch size 8, 1.00 epochs',
      'loss sigmoid', 'learning_rate 0.001',
      'resize; flip, probability 0.3',
      '**Preprocessing:** resize; mean 0.5, std 0.5', '**Classes:** 0, 1, 2',
      '**Licence of the weights:** not stated', f'--model={workdir}'):
    assert words in text
  assert front(text)['license'] == 'unknown'


def test_only_the_card_section_changes_the_card_of_a_finished_run(
    experiment, workdir, train_again):
  before = (workdir / 'model_card.md').read_text()
  after = train_again(card=log_config.CardConfig(licence='cc-by-4.0'))
  assert front(after)['license'] == 'cc-by-4.0'
  assert after.split('## Results')[1].split('## Cost')[0] in before


def test_the_card_of_a_finished_run_keeps_its_settings(
    experiment, workdir, train_again):
  # The metrics were not measured with the new setting.
  section = dataclasses.replace(experiment.config.evals['val'], flip=True)
  assert train_again(evals={'val': section}) == (
      workdir / 'model_card.md').read_text()


def test_hostile_names_are_text_in_a_card(experiment, workdir):
  name = '<script>x</script> [a](http://b) ![c](d) *e* `f`\n---\n# g | h\x1b[1m'
  summary = summary_of(workdir)
  dataset = dataclasses.replace(
      experiment.dataset, name=name, class_names=(name, *'123456789'))
  hostile = dataclasses.replace(
      experiment, dataset=dataset, open_data=lambda *_: (dataset, None))
  text = model_card.of_run(
      hostile, summary, workdir=f'runs/{name}; rm -rf x', title=name,
      origin=f'hf://{name}', source_config={'data': {'source': name}})
  assert '\x1b' not in text
  metadata, body = text.removeprefix('---\n').split('\n---\n', 1)
  assert yaml.safe_load(metadata)['model-index'][0]['name'] == escape.line(name)
  tokens = markdown_it.MarkdownIt('commonmark').enable('table').parse(body)
  inline = [child for token in tokens for child in token.children or ()]
  kinds = {token.type for token in [*tokens, *inline]}
  assert not kinds & {'html_block', 'html_inline', 'link_open', 'image', 'hr',
                      'em_open'}
  shown = ''.join(t.content for t in inline)
  assert shown.count(escape.line(name)) == 4 + body.count('| val |')
  command, = [t.content for t in tokens if t.info == 'bash']
  assert shlex.split(command)[3:] == [
      f'--model=runs/{escape.line(name)}; rm -rf x', 'photos/']


def test_a_number_that_is_none_is_left_out(experiment, workdir):
  summary = summary_of(workdir)
  summary['metrics']['val/loss'] = None  # JSON stores NaN as null.
  del summary['best'], summary['exaflops'], summary['core_hours_by_kind']
  text = model_card.of_run(experiment, summary, workdir=workdir)
  (result,) = front(text)['model-index'][0]['results']
  assert 'val/loss' not in {m['name'] for m in result['metrics']}
  assert '| loss | – |' in text and '**Core-hours:** unknown' in text


@pytest.mark.parametrize((
    'dataset', 'objective', 'summary', 'words', 'absent'), [
    ({}, {}, {'steps': 4, 'images': 24},
     ['4 steps on 24 images in all, batch size 8 in the end'], []),
    ({'targets': ('light', 'dark')}, {}, {},
     ['numbers to predict: light, dark'],
     ['image-classification', 'model-index']),
    ({'masks': True}, {'name': 'segmentation'}, {},
     ['pipeline_tag: image-segmentation', '**Labels:** one per pixel',
      'main.py predict'], [])],
    ids=['batch size', 'regression', 'segmentation'])
def test_a_card_describes_the_kind_of_run(
    dataset, objective, summary, words, absent, experiment, workdir):
  config, other = experiment.config, copy.copy(experiment)
  if objective:
    config = dataclasses.replace(
        config, objective=objectives.parse(objective))
  # Without training such a model.
  object.__setattr__(other, 'config', config)
  object.__setattr__(other, 'dataset', dataclasses.replace(
      experiment.dataset, **dataset))
  text = model_card.of_run(
      other, summary_of(workdir, **summary), workdir=workdir)
  assert all(each in text for each in words)
  assert not any(each in text for each in absent)
