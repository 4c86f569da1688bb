"""Training on a CSV table with unreadable images from the command line."""

import itertools
import json

import pytest

from tests import own_data
from tests import pictures
from tests import toy
import vit_jax
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.checkpoints import manager

pytestmark = [pytest.mark.slow,  # It trains a model.
              pytest.mark.usefixtures('one_device')]

CONFIG = {
    'total': {'steps': 4}, 'model': {'patch': 3},
    'data': {'resolution': 9, 'split': 'train', 'unreadable': 'skip'},
    'checkpoint': {'every': {'steps': 2}}, 'log': {'every': {'steps': 2}},
    'evals': {'test': {'batch_size': 8}},
}
NAMES = ('ant', 'bee', 'cow')
UNREADABLE = {'3.png', '8.png', '23.png', '28.png'}


def test_a_restarted_run_names_classes_and_counts_unreadable_images(
    tmp_path, capsys, monkeypatch):
  for i in range(40):
    file = pictures.encode(pictures.picture(i, side=9))
    (tmp_path / f'{i}.png').write_bytes(
        file[:99] if f'{i}.png' in UNREADABLE else file)
  own_data.write_table(tmp_path, 'file_name,kind,weight,split', [
      (f'{i}.png', NAMES[i % 3], i, 'train' if i < 20 else 'test')
      for i in range(40)], name='table.csv', images=False)
  toy.write(tmp_path / 'config.py', **CONFIG)
  workdir = tmp_path / 'run'
  command = ['train', f'--config={tmp_path}/config.py', f'--workdir={workdir}',
             f'--config.data.source={tmp_path}/table.csv',
             '--config.data.table.label=kind']
  save, saves = manager.Checkpoints.save, []

  def save_once(self, *args, **kwargs):
    if saves:
      raise KeyboardInterrupt
    saves.append(save(self, *args, **kwargs))

  with monkeypatch.context() as patch:
    patch.setattr(manager.Checkpoints, 'save', save_once)
    with pytest.raises(KeyboardInterrupt):
      main.main(command)
  assert not main.main(command)
  printed = ' '.join(capsys.readouterr().out.split())
  assert ('table.csv: single-label, 3 classes: ant, bee, cow (kind)'
          in printed)
  assert 'of 32 images were unreadable' in printed
  section = json.loads((workdir / 'config.json').read_text())['data']
  assert section['table']['label'] == 'kind'
  assert vit_jax.load(str(workdir)).preprocess.labels == NAMES
  config = data.parse(section)
  counter = data.UnreadableCounter()
  list(itertools.islice(data.train_batches(
      config, data.open_dataset(config), seed=0, batch_size=8,
      unreadable=counter), 4))
  summary = json.loads((workdir / 'summary.json').read_text())
  assert summary['unreadable'] == counter.count > 2
  assert summary['metrics']['test/examples'] == 18
  with (workdir / 'unreadable.jsonl').open() as file:
    assert {json.loads(line)['key'] for line in file} == UNREADABLE
