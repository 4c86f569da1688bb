"""The files of docs/extend.md train, and their run is read back."""

import pathlib
import re
import sys

from matplotlib import figure
import pytest

from tests import leaves
import vit_jax
from vit_jax import __main__ as main
from vit_jax import registry

pytestmark = pytest.mark.slow  # They train.
PAGE = (pathlib.Path(__file__).parents[1] / 'docs' / 'extend.md').read_text()
FILES = dict(re.findall(
    r'```python title=(\S+)\n(.*?)```', PAGE, re.DOTALL))
MODULES = sorted(name[:-len('.py')] for name in FILES if name != 'config.py')


def forget(monkeypatch):
  """Makes the modules of the page unknown, as in a new process."""
  monkeypatch.setattr(registry, '_allowed', set())
  monkeypatch.setattr(registry, '_folders', [])
  for name in MODULES:
    sys.modules.pop(name, None)


@pytest.fixture
def project(tmp_path, monkeypatch):
  for name, text in FILES.items():
    (tmp_path / name).write_text(text)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', list(sys.path))
  forget(monkeypatch)
  yield
  forget(monkeypatch)


def test_the_project_trains_and_only_named_modules_are_imported_again(
    project, one_device, monkeypatch, capsys):
  figures, save = [], figure.Figure.savefig
  monkeypatch.setattr(
      figure.Figure, 'savefig', lambda fig, *args, **options: (
          figures.append(fig), save(fig, *args, **options)))
  train = ['train', '--config=config.py', '--workdir=runs/focal',
           '--config.objective.gamma=1', '--config.data.num_threads=1']
  assert main.main(train) == 0
  # Metrics of one's own have a percent sign, a title and a curve.
  printed = capsys.readouterr().out
  assert re.search(r'margin/margin +\d+\.\d\d %', printed)
  assert float(re.search(r'test/accuracy +([\d.]+) %', printed)[1]) > 95
  if leaves.has(registry.CURVES):
    assert [axes.get_title(loc='left') for axes in figures[0].axes] == [
        'Loss', 'Accuracy', 'Confidence', 'Margin', 'Learning rate']
  # A finished run is read by its config file.
  forget(monkeypatch)
  assert main.main(train) == 0

  forget(monkeypatch)
  capsys.readouterr()
  evaluate = ['evaluate', '--workdir=runs/focal']
  for known in range(len(MODULES)):
    assert main.main([*evaluate, *(
        f'--import={name}' for name in sorted(
            {*MODULES} & {*sys.modules}))]) == 2
    error = capsys.readouterr().err
    name = re.search(r'--import=(\w+)', error.replace('\n', ' '))[1]
    assert name in MODULES and name not in sys.modules, error
    assert 'malformed' not in error
    registry.allow(name)
    if known == len(MODULES) - 1:
      assert main.main(evaluate) == 0

  forget(monkeypatch)
  with pytest.raises(ValueError, match='--import=convnet'):
    vit_jax.load('runs/focal', log=None)
  model = vit_jax.load(
      'runs/focal', log=None, imports=['convnet', 'focal'])
  assert model.config.name == 'convnet:ConvNet'
  assert 'margin' not in sys.modules
  registry.allow(*MODULES)
  assert set(vit_jax.evaluate(
      'runs/focal', ['margin:Margin'],
      overrides=['evals.Margin.temperature=2'])) == {
          'Margin/margin', 'Margin/examples'}
