"""Runs of 2026-11-29, when labels were inferred, resume with declared ones."""

import pathlib
import zipfile

import jax
from PIL import Image
import pytest

from tests import leaves
from tests import own_data
from tests import pictures
import vit_jax
from vit_jax import registry
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.weights import open as open_lib

RUNS = pathlib.Path(__file__).parents[1] / 'golden/runs_of_inferred_data.zip'
ANIMALS = ('cat', 'dog', 'emu')
IMAGES = [pictures.encode(Image.new('RGB', (8, 8), (
    i * 5 % 256, i * 11 % 256, i * 17 % 256))) for i in range(30)]


def write(root, kind):
  """Writes class folders, a tar, or a folder of images and their table."""
  if kind == 'tar':
    own_data.write_tar(root / 'train-0.tar', (
        member for i, image in enumerate(IMAGES) for member in (
            (f'{i}.png', image), (f'{i}.cls', str(i % 3)))))
    return
  for i, image in enumerate(IMAGES):
    folder = root / (ANIMALS[i % 3] if kind == 'folders' else 'images')
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f'{i}.png').write_bytes(image)
  if kind in TABLES:
    column, cell = TABLES[kind]
    own_data.write_table(root, f'image_id,{column}', [
        (i, cell(i)) for i in range(30)], images=False)


TABLES = {
    'table': ('breed', lambda i: ANIMALS[i % 3]),
    'numbers': ('price', lambda i: f'{i}.5'),
    'several': ('tags', lambda i: f'{ANIMALS[i % 3]}|{ANIMALS[i % 2]}')}
LOSSES = {'numbers': 'mse', 'several': 'sigmoid'}


@pytest.mark.skipif(not leaves.has(registry.SUGGESTIONS), reason='no leaf')
@pytest.mark.slow
@pytest.mark.parametrize(('kind', 'target'), [
    # A section with `auto` is that of class folders: `extras.earlier_data`.
    ('table', 'auto'), ('folders', 'auto'), ('tar', 'auto'),
    ('numbers', 'regression'), ('several', 'multi')])
def test_a_run_of_inferred_data_resumes_with_the_pasted_flags(
    tmp_path, capsys, kind, target):
  with zipfile.ZipFile(RUNS) as archive:
    archive.extractall(tmp_path, [
        name for name in archive.namelist() if name.startswith(f'{kind}/')])
  assert open_lib.open(str(tmp_path / kind)).run['data'].get('target') == target
  write(tmp_path / 'data', kind)
  data = {'source': str(tmp_path / 'data'), 'resolution': 8}
  if kind in TABLES:
    with pytest.raises(ValueError) as error:
      own_data.open_splits(data['source'])
    for name, value in own_data.paste(error.value).items():
      section, _, key = name.rpartition('.')
      (data.setdefault('table', {}) if section else data)[key] = value
  summary = vit_jax.train(build_lib.build(config_lib.resolve({
      'total': {'steps': 3}, 'batch_size': 4,
      'model': {'width': 4, 'depth': 1, 'mlp_dim': 4, 'num_heads': 1,
                'patch': 8},
      'objective': {'loss': LOSSES.get(kind, 'softmax')}, 'data': data,
      'optimizer': {'name': 'sgd', 'learning_rate': 0.01,
                    'schedule': {'name': 'constant'}},
      'evals': {'test': {'batch_size': 4}}, 'log': {'every': {'steps': 1}},
      'checkpoint': {'every': {'steps': 2}, 'best': ''}}),
      devices=jax.devices()[:1]), tmp_path / kind)
  output = capsys.readouterr().out
  assert summary['steps'] == 3 and 'Resuming from step 2' in output
  assert 'Changes of the data' not in output and 'data.target' not in output
