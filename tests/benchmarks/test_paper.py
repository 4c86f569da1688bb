"""Runs of docs/paper.md are skipped when finished, and drawn by series."""

import json
import os
import signal
import sys
import threading
import time

import paper
import pytest


def write_run(folder, name, accuracy, *, flops=1e9, best=None):
  (folder / name).mkdir(parents=True)
  (folder / name / 'summary.json').write_text(json.dumps({
      'flops': flops, 'best': best and {'metrics': {'test/accuracy': best}},
      'metrics': {'test/accuracy': accuracy}}))


def test_values_are_collected_by_series_and_x(tmp_path):
  write_run(tmp_path, 'cls,1e-03,0', 0.5)
  write_run(tmp_path, 'cls,1e-03,1', 0.25, best=0.75)
  write_run(tmp_path, 'mean,1e-02,0', 0.5)
  assert paper.read(tmp_path, 'test/accuracy', 'learning rate') == {
      'cls': {0.001: [50.0, 75.0]}, 'mean': {0.01: [50.0]}}
  assert paper.read(tmp_path, 'fewshot/5_shot', 'learning rate') == {}


def test_the_base_is_part_of_every_series(tmp_path):
  write_run(tmp_path, 'base,1,0', 0.5, flops=2e9)
  write_run(tmp_path, 'depth,8,0', 0.75, flops=4e9)
  assert paper.read(tmp_path, 'test/accuracy', paper.FLOPS) == {
      'depth': {4.0: [75.0], 2.0: [50.0]}}


def test_the_table_shows_mean_and_range(tmp_path):
  assert paper.draw('9', tmp_path) == []
  write_run(tmp_path / 'figure9', 'cls,1e-03,0', 0.5)
  write_run(tmp_path / 'figure9', 'cls,1e-03,1', 0.75)
  assert paper.draw('9', tmp_path) == [tmp_path / 'figure9.partial.png']
  assert (tmp_path / 'figure9.partial.png').stat().st_size
  assert '| cls | 0.001 | 62.5 | 50.0 – 75.0 | 2 |' in (
      tmp_path / 'figure9.partial.md').read_text()


def test_a_picture_without_all_runs_says_so_and_keeps_its_colours(
    tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(paper, 'plot', lambda series, path, **options: (
      drawn.append((path.name, options['title'], options['names']))))
  expected = list(paper.finished(
      paper.EXPERIMENTS['9'].commands[0].format(runs=tmp_path, data='')))
  for i, path in enumerate(expected):
    write_run(path.parent, path.name, 0.5)
    if i in (0, len(expected) - 1):
      paper.draw('9', tmp_path)
  (first, title, names), (last, no_title, same) = drawn
  assert (first, title) == (
      'figure9.partial.png', f'1 of {len(expected)} runs')
  assert (last, no_title, same) == ('figure9.png', '', names)


def test_a_table_has_the_shape_of_the_paper(tmp_path):
  for name, accuracy in (('none,stem,0', 0.5), ('2d,layers,0', 0.75),
                         ('2d,layers,1', 0.5)):
    write_run(tmp_path / 'table8', name, accuracy)
  assert paper.draw('table8', tmp_path) == [tmp_path / 'table8.partial.png']
  assert (tmp_path / 'table8.partial.md').read_text().splitlines() == [
      '|  | stem | layers | shared |', '| --- | --- | --- | --- |',
      '| none | 50.0 (50.0 – 50.0) | – | – |', '| learned | – | – | – |',
      '| 2d | – | 62.5 (50.0 – 75.0) | – |', '| relative | – | – | – |']


def test_stages_of_masked_patch_prediction_are_columns(tmp_path):
  for stage, accuracy in (('pretrain', 0.1), ('finetune_10', 0.75),
                          ('scratch_10', 0.5)):
    write_run(tmp_path / 'masked' / '0.5,patch,0', stage, accuracy)
  (tmp_path / 'masked' / '0.5,patch,0' / 'summary.json').write_text(
      json.dumps({'stages': {}}))
  assert paper.read(tmp_path / 'masked', 'test/accuracy', paper.TARGET) == {
      '0.5': {'patch': [75.0], 'from scratch': [50.0]}}
  assert paper.draw('section4.6', tmp_path) == [tmp_path / 'masked.partial.png']
  assert (tmp_path / 'masked.partial.md').read_text().splitlines()[2] == (
      '| 0.5 | – | – | 75.0 (75.0 – 75.0) | 50.0 (50.0 – 50.0) |')


@pytest.mark.parametrize(('figures', 'folders'), [
    ('3', ['figure4']),
    ('table2', ['figure4', 'table2/ViT', 'table2/hybrid', 'table2/ResNet'])])
def test_runs_that_others_need_come_first(
    figures, folders, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(paper.MAIN.parent)
  monkeypatch.setattr(paper.sys, 'argv', [
      'paper.py', f'--figures={figures}', f'--runs={tmp_path}'])
  ran = []

  def run(words, env):
    ran.append(words[-1].removeprefix(f'--workdir={tmp_path}/'))
    return 0

  monkeypatch.setattr(paper, 'run', run)
  paper.main()
  assert ran == folders
  assert 'minutes on two cores' in capsys.readouterr().out


def test_an_interrupted_command_may_save_its_state(tmp_path):
  saved, ready = tmp_path / 'saved', tmp_path / 'ready'

  def interrupt():
    while not ready.exists():
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    ready.unlink()  # Stands for the signal that a terminal sends.

  threading.Thread(target=interrupt).start()
  assert paper.run([sys.executable, '-c', f"""
import pathlib, sys, time
ready = pathlib.Path({str(ready)!r})
ready.touch()
while ready.exists(): time.sleep(0.01)
time.sleep(1)
pathlib.Path({str(saved)!r}).touch()
sys.exit(130)"""], None) == 130
  assert saved.exists()


@pytest.mark.parametrize('name', paper.EXPERIMENTS)
def test_finished_stages_are_left_out_of_the_estimate(
    name, tmp_path, monkeypatch):
  monkeypatch.chdir(paper.MAIN.parent)
  command = paper.EXPERIMENTS[name].commands[0].format(
      runs=tmp_path, data='data')
  assert paper.unfinished(command) == 1.0
  folder = command.rpartition('--workdir=')[2]
  if command.startswith('sweep'):  # It is finished as a whole.
    paper.pathlib.Path(folder).mkdir(parents=True)
    result = paper.pathlib.Path(folder, 'sweep.json')
    results = (({'final': None}, 1.0), ({'final': {'runs': {}}}, 0.0))
    if name == 'transfer':
      results = (({'tasks': {'flowers5_frozen': {}}}, 0.8),)
    for content, left in results:
      result.write_text(json.dumps(content))
      assert paper.unfinished(command) == left
    return
  config = dict(w.removeprefix('--').split('=', 1)
                for w in command.split()[1:])['config']
  stages = list(paper.config_file.read(config).get('stages') or [''])
  for stage in stages[:-1]:
    write_run(paper.pathlib.Path(folder), stage, 0.5)
  assert paper.unfinished(command) == pytest.approx(1 / len(stages))


def test_experiments_on_photographs_need_data(monkeypatch, capsys):
  monkeypatch.setattr(paper.sys, 'argv', ['paper.py', '--figures=9,transfer'])
  with pytest.raises(SystemExit):
    paper.main()
  assert 'transfer: set DATA=FOLDER' in capsys.readouterr().err
