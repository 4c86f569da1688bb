"""Training on a CSV table from the command line."""

import json

from PIL import Image

import main
import vit_jax

CONFIG = """
from ml_collections import ConfigDict

def get_config():
  return ConfigDict({
      'total': {'steps': 2}, 'batch_size': 8,
      'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 8,
                'patch': 4},
      'data': {'source': 'digits', 'resolution': 8},
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1,
                    'schedule': {'name': 'constant'}},
      'evals': {'test': {'batch_size': 8}},
  })
"""


def test_training_prints_how_a_table_is_read_and_saves_class_names(
    tmp_path, capsys):
  (tmp_path / 'config.py').write_text(CONFIG)
  names = ('ant', 'bee', 'cow')
  rows = ['photo,kind,weight']
  for i in range(24):
    Image.new('L', (9, 8), 10 * i).save(tmp_path / f'{i}.png')
    rows.append(f'{i}.png,{names[i % 3]},{i}')
  (tmp_path / 'table.csv').write_text('\n'.join(rows))
  workdir = tmp_path / 'run'
  assert not main.main([
      'train', f'--config={tmp_path}/config.py', f'--workdir={workdir}',
      f'--config.data.source={tmp_path}', '--config.data.table.label=kind'])
  assert 'table.csv: single-label, 3 classes: ant, bee, cow (column kind)' in (
      capsys.readouterr().out)
  config = json.loads((workdir / 'config.json').read_text())
  assert config['data']['table']['label'] == 'kind'
  assert vit_jax.load(str(workdir)).preprocess.labels == names
