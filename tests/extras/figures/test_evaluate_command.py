"""Command `evaluate` draws the results of evaluators."""

from tests.commands.conftest import wide_terminal  # noqa: F401
from tests.commands.test_evaluate import config_file  # noqa: F401
from tests.commands.test_evaluate import evaluate  # noqa: F401
from tests.commands.test_evaluate import trained  # noqa: F401


def test_figures_are_drawn_in_the_workdir(
    evaluate, trained, capsys):  # noqa: F811
  status, _ = evaluate(
      f'--workdir={trained}', '--evaluators=calibration,confusion')
  assert status == 0
  figure = trained / 'evals' / 'confusion.png'
  assert figure.read_bytes().startswith(b'\x89PNG')
  assert f'figure      {figure}' in capsys.readouterr().out
  for name in ('confusion_mistakes', 'calibration'):
    assert (trained / 'evals' / f'{name}.png').exists()


def test_segmentations_are_drawn(
    evaluate, trained, tmp_path, capsys):  # noqa: F811
  status, figures = evaluate(
      f'--workdir={trained}', '--evaluators=segmentation',
      '--config.evals.segmentation.source=shapes',
      '--config.evals.segmentation.train_split=train[:30]',
      '--config.evals.segmentation.split=test[:9]',
      '--config.evals.segmentation.classes=["paper","stroke"]',
      f'--output={tmp_path}')
  assert status == 0
  assert figures['metrics']['segmentation/examples'] == 9
  assert figures['tables']['segmentation']['class_names'] == [
      'paper', 'stroke']
  path = tmp_path / 'segmentation.png'
  assert f'figure      {path}' in capsys.readouterr().out
  assert path.read_bytes().startswith(b'\x89PNG')
