"""Counted training costs agree with the paper's Tables 6 and 2."""

import json
import pathlib

import pytest

from vit_jax import __main__ as main
from vit_jax.extras.plan import paper_costs

CONFIGS = pathlib.Path(__file__).parents[3] / 'configs'
PRETRAIN, QUICKSTART = CONFIGS / 'pretrain.py', CONFIGS / 'quickstart.py'


def test_the_tables_are_printed_and_written(tmp_path, capsys, monkeypatch):
  # Other tests count all rows.
  monkeypatch.setattr(paper_costs, 'TABLE_6', [('B/16', 7, 224)])
  monkeypatch.setattr(paper_costs, 'TABLE_2', [
      row for row in paper_costs.TABLE_2 if row[:2] == ('L/16', 'jft')])
  path = tmp_path / 'new' / 'flops.json'
  assert main.main(['flops', f'--json={path}']) == 0
  lines = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert ['B/16', '7', '17.56', '224', '224', '-0.2', '%'] in lines
  assert ['L/16', 'jft', '14', '1,567', '680', '43.4', '%'] in lines
  written = json.loads(path.read_text())
  assert [(r['variant'], r['epochs'], r['paper'])
          for r in written['table_6']] == paper_costs.TABLE_6
  assert len(written['table_2']) == 1


def count(tmp_path, capsys, *arguments):
  path = tmp_path / 'flops.json'
  assert main.main(['flops', *arguments, f'--json={path}']) == 0
  return json.loads(path.read_text()), capsys.readouterr().out


def test_a_config_is_counted_without_its_data(tmp_path, capsys):
  written, output = count(
      tmp_path, capsys, f'--config={PRETRAIN}:model=B/16,dataset=jft:1.0.0',
      f'--config.data.data_dir={tmp_path}')
  (stage,) = written['stages']
  assert stage['images'] == pytest.approx(7 * 303e6, rel=1e-5)
  assert stage['epochs'] == pytest.approx(7, rel=1e-5)
  assert stage['exaflops'] == pytest.approx(224, rel=0.01)
  assert (stage['paper_exaflops'], stage['paper_core_days']) == (224, None)
  assert stage['sizes_from'] == 'table'
  # 40 % of 61.5 TFLOP/s.
  assert stage['core_days'] == pytest.approx(
      stage['exaflops'] * 1e18 / (0.4 * 61.5e12 * 86400))
  assert 'jft:1.0.0 is not available' in output
  assert 'Paper, Table 6: 224 exaFLOPs' in output
  assert 'an assumption: see --utilisation' in output


def test_each_stage_has_a_row(tmp_path, capsys):
  written, output = count(tmp_path, capsys, f'--config={QUICKSTART}',
                          '--config.mesh.fsdp=64')
  stages = {stage['stage']: stage for stage in written['stages']}
  assert next(iter(stages)) == 'pretrain'
  assert stages['finetune']['images'] == 240 * 32
  assert stages['finetune']['epochs'] == pytest.approx(240 * 32 / 1437)
  assert {stage['sizes_from'] for stage in stages.values()} == {'data'}
  assert written['exaflops'] == pytest.approx(
      sum(stage['exaflops'] for stage in stages.values()))
  first = {line.split()[0] for line in output.splitlines() if line.split()}
  assert {*stages, 'all'} <= first


@pytest.mark.parametrize(('arguments', 'words'), [
    (['--config.seed=3'], '--config is missing'),
    (['--utilisation=40'], 'above 0 and at most 1, but is 40'),
    ([f'--config={PRETRAIN}:dataset=nowhere', '--config.data.data_dir=/no'],
     "No dataset 'nowhere'"),
    # The error is about the model, not about the missing data.
    ([f'--config={CONFIGS}/finetune.py:model=H/14,dataset=cifar10,'
      'resolution=384', '--config.data.data_dir=/no'], 'divide'),
])
def test_mistakes_are_errors(arguments, words, capsys):
  assert main.main(['flops', *arguments]) == 2
  assert words in capsys.readouterr().err
