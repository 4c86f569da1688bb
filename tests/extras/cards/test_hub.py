"""Models are uploaded to a hub, and loaded from it."""

import json
import shutil
import time

import pytest

from tests import fake_hub
from tests import random_models
from tests.extras.cards import test_model_card
from tests.extras.cards.test_model_card import _experiment  # noqa: F401
from tests.extras.cards.test_model_card import _workdir  # noqa: F401
import vit_jax
from vit_jax import __main__ as main
from vit_jax.extras.cards import model_card
from vit_jax.weights.formats import npz

NAME = 'someone/tiny'
CARD = '---\nlicense: mit\n---\n\n# Digits\n\n## How to use it\n\nold\n'


@pytest.fixture
def hub(monkeypatch, tmp_path):
  with fake_hub.serve(monkeypatch, tmp_path / 'hub') as running:
    yield running


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
      'commit'].startswith(f'{hub.address}/{NAME}/commit/')
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


@pytest.mark.parametrize('address', [
    f'hf://{NAME}', f'hf://{NAME}/model.safetensors'])
def test_a_config_that_cannot_be_downloaded_is_not_taken_for_none(
    address, hub, pushed, monkeypatch):
  monkeypatch.setattr(time, 'sleep', lambda _: None)  # Before other attempts.
  hub.failing = {'config.json'}
  with pytest.raises(OSError, match=f'{address} could not be') as error:
    vit_jax.load(address, log=None)
  # Which would mean that the hub has no such model.
  assert not isinstance(error.value, FileNotFoundError)
  hub.failing = set()
  assert vit_jax.load(address, log=None).preprocess == pushed.preprocess


def test_a_converted_folder_has_the_card_with_its_new_path(
    workdir, tmp_path):
  assert not convert(workdir, tmp_path / 'hub')
  text = (tmp_path / 'hub' / 'README.md').read_text()
  assert f'--model={tmp_path}/hub photos/' in text
  assert str(workdir) not in text
  assert '## Intended use and limits' in text


def test_another_checkpoint_lacks_the_metrics_of_the_card(
    workdir, tmp_path):
  folder = shutil.copytree(workdir, tmp_path / 'run')
  step, = (folder / 'checkpoints/best').iterdir()
  step.rename(step.with_name('1'))
  assert not convert(folder, tmp_path / 'hub', '--which=latest')
  metadata, original = (test_model_card.front(path.read_text()) for path in (
      tmp_path / 'hub/README.md', folder / 'model_card.md'))
  for key in ('model-index', 'metrics'):
    assert original.pop(key)
  assert metadata == original
