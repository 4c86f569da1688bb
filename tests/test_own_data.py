"""Training on a CSV table with unreadable images from the command line."""

import json

import pytest

from tests import own_data
from tests import pictures
from tests import toy
import vit_jax
from vit_jax import __main__ as main

pytestmark = [pytest.mark.slow,  # It trains a model.
              pytest.mark.usefixtures('one_device')]

CONFIG = {
    'total': {'steps': 4}, 'model': {'patch': 3},
    'data': {'resolution': 9, 'split': 'train', 'unreadable': 'skip'},
    'checkpoint': {'every': {'steps': 2}, 'keep': 2},
    'log': {'every': {'steps': 2}}, 'evals': {'test': {'batch_size': 8}},
}
NAMES = ('ant', 'bee', 'cow')
UNREADABLE = {'3.png', '8.png', '23.png', '28.png'}


def test_a_restarted_run_names_classes_and_counts_unreadable_images(
    tmp_path, capsys):
  for i in range(40):
    file = pictures.encode(pictures.picture(i, side=9))
    (tmp_path / f'{i}.png').write_bytes(
        file[:99] if f'{i}.png' in UNREADABLE else file)
  own_data.write_table(tmp_path, 'file_name,kind,weight,split', [
      (f'{i}.png', NAMES[i % 3], i, 'train' if i < 20 else 'test')
      for i in range(40)], name='table.csv', images=False)
  train = ['train', f'--config={toy.write(tmp_path / "config.py", **CONFIG)}',
           f'--config.data.source={tmp_path}/table.csv',
           '--config.data.table.label=kind']
  calm, workdir = tmp_path / 'calm', tmp_path / 'run'
  assert not main.main([*train, f'--workdir={calm}'])
  toy.copy_at(calm, workdir, step=2)
  assert not main.main([*train, f'--workdir={workdir}'])
  printed = ' '.join(capsys.readouterr().out.split())
  assert ('table.csv: single-label, 3 classes: ant, bee, cow (kind)'
          in printed)
  assert printed.count('of 32 images were unreadable') == 2
  section = json.loads((workdir / 'config.json').read_text())['data']
  assert section['table']['label'] == 'kind'
  assert vit_jax.load(str(workdir)).preprocess.labels == NAMES
  expected, found = (json.loads((folder / 'summary.json').read_text())
                     for folder in (calm, workdir))
  assert found['unreadable'] == expected['unreadable'] > 2
  assert found['metrics']['test/examples'] == 18
  with (workdir / 'unreadable.jsonl').open() as file:
    assert {json.loads(line)['key'] for line in file} == UNREADABLE
