"""The card of a run, and the model on the Hugging Face hub that has it."""

import copy
import dataclasses
import fnmatch
import json
import pathlib
import shlex
import shutil
import types
from unittest import mock

import huggingface_hub
import markdown_it
import pytest
import yaml

from tests import random_models
from tests import toy
import vit_jax
from vit_jax import __main__ as main
from vit_jax import escape
from vit_jax import objectives
from vit_jax import run as run_lib
from vit_jax.extras.cards import config as card_config
from vit_jax.extras.cards import model_card
from vit_jax.run import writer as writer_lib
from vit_jax.weights.formats import npz

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
  after = train_again(card=card_config.CardConfig(licence='cc-by-4.0'))
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
    config = dataclasses.replace(config, objective=objectives.parse(objective))
  # Without training such a model.
  object.__setattr__(other, 'config', config)
  object.__setattr__(other, 'dataset', dataclasses.replace(
      experiment.dataset, **dataset))
  text = model_card.of_run(
      other, summary_of(workdir, **summary), workdir=workdir)
  assert all(each in text for each in words)
  assert not any(each in text for each in absent)


NAME = 'someone/tiny'
CARD = '---\nlicense: mit\n---\n\n# Digits\n\n## How to use it\n\nold\n'


class Hub:
  """A hub in a folder; its methods replace those of the client."""

  def __init__(self, folder):
    self.files, self.visibility = {}, {}  # By 'USER/NAME'.
    self.denied, self._folder = False, folder

  def create_repo(self, api, repo_id, *, private, exist_ok):
    del api, exist_ok
    if self.denied:
      raise PermissionError('403 Forbidden')
    self.files.setdefault(repo_id, {})
    self.visibility[repo_id] = 'private' if private else 'public'

  def upload_folder(self, api, *, repo_id, folder_path, commit_message):
    del api, commit_message
    self.files[repo_id] |= {path.name: path.read_bytes() for path in
                            pathlib.Path(folder_path).iterdir()}
    return types.SimpleNamespace(commit_url=f'https://hub/{repo_id}/commit/1')

  def list_repo_files(self, repo_id, *, revision):
    del revision
    return [*self.files[repo_id]]

  def snapshot_download(self, repo_id, *, revision, allow_patterns):
    del revision
    folder = self._folder / repo_id
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in self.files[repo_id].items():
      if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
        (folder / name).write_bytes(content)
    return str(folder)


@pytest.fixture
def hub(monkeypatch, tmp_path):
  made = Hub(tmp_path / 'hub')
  for owner, name in (
      (huggingface_hub.HfApi, 'create_repo'),
      (huggingface_hub.HfApi, 'upload_folder'),
      (huggingface_hub, 'list_repo_files'),
      (huggingface_hub, 'snapshot_download')):
    monkeypatch.setattr(owner, name, mock.create_autospec(
        getattr(owner, name), side_effect=getattr(made, name)))
  return made


@pytest.fixture
def source(tmp_path):
  npz.write(tmp_path / 'source.npz', random_models.arrays('npz'))
  return tmp_path / 'source.npz'


def convert(source, target, *flags, form='timm'):
  return main.main(['convert', f'--source={source}', f'--target={target}',
                    f'--format={form}', *flags])


def push(source, target, *flags, **options):
  return convert(source, target, '--set=gelu=exact', '--set=pooling=cls',
                 f'--push={NAME}', *flags, **options)


def test_a_pushed_model_is_complete_and_loads(hub, source, tmp_path, capsys):
  assert push(source, tmp_path / 'out', '--licence=apache-2.0', '--private',
              f'--json={tmp_path}/figures.json') == 0
  assert f'pushed  hf://{NAME}' in capsys.readouterr().out
  assert hub.visibility == {NAME: 'private'}
  assert hub.files[NAME] == {
      path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()}
  assert {'config.json', 'model.safetensors', 'README.md'} <= set(
      hub.files[NAME])
  card = hub.files[NAME]['README.md'].decode()
  assert 'license: apache-2.0' in card
  assert 'library_name: timm' in card
  assert f"vit_jax.load('hf://{NAME}')" in card
  assert json.loads((tmp_path / 'figures.json').read_text())[
      'commit'] == f'https://hub/{NAME}/commit/1'
  found = vit_jax.load(f'hf://{NAME}', log=None)
  random_models.assert_same(
      found.params, random_models.params(random_models.config_of()))


def test_the_licence_of_a_repository_is_pushed_again(hub, pushed, tmp_path):
  hub.files[NAME]['LICENSE.txt'] = b'Terms'
  assert push(f'hf://{NAME}', tmp_path / 'out', '--licence=mit') == 0
  assert hub.files[NAME]['LICENSE'] == b'Terms'


def test_the_card_of_a_run_is_pushed_with_its_licence(hub, model, tmp_path):
  model.save(tmp_path / 'run')
  (tmp_path / 'run' / 'model_card.md').write_text(CARD)
  assert convert(tmp_path / 'run', tmp_path / 'out', f'--push={NAME}') == 0
  card = hub.files[NAME]['README.md'].decode()
  assert 'license: mit' in card and 'library_name: timm' in card
  assert '# Digits' in card and 'old' not in card
  assert 'Licence of the weights:** mit\n' in model_card.for_hub(
      CARD + '\n- **Licence of the weights:** not stated\n', library='timm',
      licence='mit')
  assert f'--model=hf://{NAME} photos/' in card
  assert hub.visibility == {NAME: 'public'}
  assert not convert(tmp_path / 'run', tmp_path / 'other', f'--push={NAME}',
                     '--set=activation=sigmoid')
  card = hub.files[NAME]['README.md'].decode()
  assert 'license: mit' in card and '# Digits' not in card


@pytest.mark.parametrize(('flags', 'form', 'words'), [
    ([], 'timm', 'The licence of the weights is unknown'),
    (['--licence=mit'], 'npz', '--push needs --format=timm'),
    (['--licence=mit', '--push=a/b/c'], 'timm',
     "--push must be USER/NAME; got 'a/b/c'")])
def test_a_mistake_writes_and_uploads_nothing(
    flags, form, words, hub, source, tmp_path, capsys):
  assert push(source, tmp_path / 'out', *flags, form=form) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'out').exists() and not hub.files


def test_a_denied_upload_is_an_error(hub, source, tmp_path, capsys):
  hub.denied = True
  assert push(source, tmp_path / 'out', '--licence=mit') == 2
  assert f'out could not be uploaded to {NAME}: ' in (
      capsys.readouterr().err.replace('\n', ' '))
  assert (tmp_path / 'out' / 'config.json').exists()


@pytest.fixture
def model():
  return random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32)


@pytest.fixture
def pushed(hub, model, tmp_path):
  model.save(tmp_path / 'x', form='timm')
  hub.files[NAME] = {path.name: path.read_bytes()
                     for path in (tmp_path / 'x').iterdir()}
  return model


def test_a_converted_folder_has_the_card_with_its_new_path(workdir, tmp_path):
  assert not convert(workdir, tmp_path / 'hub')
  text = (tmp_path / 'hub' / 'README.md').read_text()
  assert f'--model={tmp_path}/hub photos/' in text
  assert str(workdir) not in text
  assert '## Intended use and limits' in text
  # It would describe other settings.
  assert not convert(workdir, tmp_path / 'other', '--set=activation=sigmoid')
  assert not (tmp_path / 'other' / 'README.md').exists()


def test_another_checkpoint_lacks_the_metrics_of_the_card(workdir, tmp_path):
  folder = shutil.copytree(workdir, tmp_path / 'run')
  step, = (folder / 'checkpoints/best').iterdir()
  step.rename(step.with_name('1'))
  assert not convert(folder, tmp_path / 'hub', '--which=latest')
  metadata, original = (front(path.read_text()) for path in (
      tmp_path / 'hub/README.md', folder / 'model_card.md'))
  for key in ('model-index', 'metrics'):
    assert original.pop(key)
  assert metadata == original
