"""The efficiency of weak scaling follows from the bounds of plans."""

import json

import scaling


def row(name, *, sent_secs):
  bounds = {'compute': {'secs': 0.006}, 'memory': {'secs': 0.003}}
  total = {'wire_bytes': sent_secs * 6e11}
  return {
      'model': 'L/16', 'preset': 'data', 'slice': name, 'images': 32, 'axes': 3,
      'cost': {'mesh': {'data': 4, 'fsdp': 1}, 'compile_secs': 1,
               'collectives': {'all-reduce': total} if sent_secs else {}},
      'estimate': {'bounds': {
          **bounds, **({'interconnect': {'secs': sent_secs}} if sent_secs
                       else {})}}}


def test_efficiency_compares_with_a_step_without_communication(
    tmp_path, monkeypatch, capsys):
  path = tmp_path / 'scaling.json'
  path.write_text(json.dumps([row('v5p-8', sent_secs=0.001)]))
  monkeypatch.setattr(
      scaling, 'plan', lambda model, mesh, name, images: row(
          name, sent_secs=0.0))
  assert scaling.main([
      '--models=L/16', '--meshes=data', '--slices=v5p-8,v5p-16',
      f'--json={path}']) == 0
  lines = capsys.readouterr().out.splitlines()
  # 9 ms alone; 10 ms over all links, 12 ms over one of three axes.
  assert any('v5p-8' in line and '90 % – 75 %' in line for line in lines)
  assert any('v5p-16' in line and '100 % – 100 %' in line for line in lines)
  # The plan in the file was kept, and the other one added.
  assert [r['slice'] for r in json.loads(path.read_text())] == [
      'v5p-8', 'v5p-16']
