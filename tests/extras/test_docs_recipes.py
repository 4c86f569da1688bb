"""The recipes of docs/training.md run, with two steps and a small model."""

import pathlib
import re
import shlex

import numpy as np
from PIL import Image
import pytest

from tests import pictures
from tests import random_models
from vit_jax import __main__ as main

pytestmark = [pytest.mark.slow,  # It trains models.
              pytest.mark.usefixtures('one_device')]

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / 'docs' / 'training.md').read_text()
RECIPES = dict(re.findall(
    r'### (.*?)\n.*?```bash\n(.*?)```', PAGE, re.DOTALL))
SHORT = ['total={"steps":2}', 'batch_size=8', 'data.resolution=16',
         'data.num_workers=0']
SMALL = {
    'mae.py': [
        'model.width=16', 'model.depth=1', 'model.num_heads=2',
        'model.mlp_dim=32', 'objective.decoder_width=16',
        'objective.decoder_depth=1', 'objective.decoder_heads=2'],
    'continue.py': [
        'objective.hidden=16', 'objective.directions=16',
        'objective.views.num_local=1', 'objective.views.local_size=8',
        'evals.knn.k=2'],
}


@pytest.fixture
def files(tmp_path, monkeypatch):
  """The files that the recipes name, in the current folder."""
  monkeypatch.chdir(tmp_path)
  pictures.save_all(tmp_path, [f'{folder}/{i}.png' for folder, count in (
      *((f'{root}/{name}', 6) for root in ('my_images', 'labelled')
        for name in 'abcde'), ('unlabelled', 24), ('new_images', 3),
      ('scenes/images/train', 6), ('scenes/images/test', 6))
                               for i in range(count)], side=16)
  for name, header, cells in (
      ('houses.csv', 'price,rooms', [f'{i / 4},{i}' for i in range(16)]),
      ('findings.csv', 'fracture,nodule,split', [
          f'{labels},{split}'
          for split in ('train', 'train', 'validation', 'test')
          for labels in ('0,0', '1,0', '0,1', '1,1')])):
    pictures.write_table(tmp_path, header, cells, side=16, name=name)
  mask = np.arange(256, dtype=np.uint8).reshape(16, 16) // 128
  for path in (tmp_path / 'scenes' / 'images').glob('*/*.png'):
    pictures.save(tmp_path / 'scenes' / 'masks' / path.parent.name / path.name,
                  Image.fromarray(mask))
  random_models.make(
      {'variant': 'vit_small_patch14_dinov2', 'patch': 8, 'width': 16,
       'depth': 2, 'num_heads': 2, 'mlp_dim': 32, 'num_classes': 0},
      side=16).save(tmp_path / 'backbone')


def commands(recipe):
  text = re.sub(r'hf://[^\s,]+', 'backbone', RECIPES[recipe])
  text = text.replace('\\\n', ' ')
  return [shlex.split(line)[2:] for line in text.split('\n')
          if line.startswith('python main.py')]


# Training with labels, without labels, and serving.
TYPICAL = ('Several labels per image', 'Continue DINOv3', 'Serve a model')


@pytest.mark.parametrize('recipe', [
    pytest.param(
        name, marks=[pytest.mark.large] * (not name.startswith(TYPICAL)))
    for name in RECIPES])
def test_the_commands_of_a_recipe_run(recipe, files, capsys):
  lines = commands(recipe)
  if recipe == 'Serve a model':  # The model of the first recipe.
    lines = [*commands(next(iter(RECIPES)))[1:2], *lines]
  for words in lines:
    configured = [word for word in words if word.startswith('--config=')]
    words = [word.replace('configs/', f'{ROOT}/configs/')
             .replace('model=S/16', 'model=Ti/8')
             .replace('=./', f'={pathlib.Path.cwd()}/')
             .replace('=backbone', f'={pathlib.Path.cwd()}/backbone')
             for word in words]
    short = [f'--config.{setting}' for setting in [*SHORT, *(
        setting for name, small in SMALL.items() if name in configured[0]
        for setting in small)]] if configured else []
    if words[0] == 'evaluate':
      short = [word for word in short if 'total' not in word] * bool(configured)
    assert main.main([*words, *short]) == 0, words
  assert capsys.readouterr().out
