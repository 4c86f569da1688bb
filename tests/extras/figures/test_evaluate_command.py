"""Command `evaluate` draws the results of evaluators."""

import pytest

from tests.commands.conftest import wide_terminal  # noqa: F401
from tests.commands.test_evaluate import config_file  # noqa: F401
from tests.commands.test_evaluate import evaluate  # noqa: F401
from tests.commands.test_evaluate import trained  # noqa: F401


@pytest.mark.slow  # Trains.
def test_figures_are_drawn_in_the_workdir(
    evaluate, trained, capsys):  # noqa: F811
  status, figures = evaluate(
      f'--workdir={trained}', '--evaluators=calibration,confusion,segmentation',
      '--config.evals.segmentation.source=shapes',
      '--config.evals.segmentation.train_split=train[:30]',
      '--config.evals.segmentation.split=test[:9]',
      '--config.evals.segmentation.classes=["paper","stroke"]')
  assert status == 0
  assert figures['metrics']['segmentation/examples'] == 9
  assert figures['tables']['segmentation']['class_names'] == ['paper', 'stroke']
  folder = trained / 'evals'
  assert f'figure      {folder}/confusion.png' in capsys.readouterr().out
  for name in ('confusion', 'confusion_mistakes', 'calibration',
               'segmentation'):
    assert (folder / f'{name}.png').read_bytes().startswith(b'\x89PNG')
