"""Training curves show every run and metric, and no legend covers them."""

import itertools

import matplotlib
from PIL import Image
import pytest

from vit_jax import metrics
from vit_jax.extras import plots
from vit_jax.extras.figures import training_curves

DECLARED = metrics.LOSS, metrics.ACCURACY


def make_rows(*, num_points=20, scale=1.0):
  rows = []
  for step in range(1, num_points + 1):
    rows.append({
        'step': 10 * step, 'train/loss': scale / step,
        'train/learning_rate': 1e-3 / step, 'train/accuracy': step / 30})
    rows.append({
        'step': 10 * step, 'val/loss': 1.2 * scale / step,
        'val/accuracy': step / 40})
  return rows


@pytest.fixture
def draw(monkeypatch, tmp_path):
  """Returns a function that writes the curves of runs, with their figure."""
  save, figures = plots.save, []

  def keep(fig, path):
    save(fig, path)
    figures.append(fig)

  def draw_curves(runs):
    training_curves.draw(runs, tmp_path / 'curves.png', declared=DECLARED)
    return figures.pop()

  monkeypatch.setattr(plots, 'save', keep)
  return draw_curves


def labels(fig):
  return [text.get_text() for text in fig.legends[0].get_texts()]


@pytest.mark.parametrize('num_runs', [1, 3, 5])
def test_each_run_has_its_colour_in_every_panel(num_runs, draw, tmp_path):
  runs = {f'run {i}': make_rows(scale=1 + i) for i in range(num_runs)}
  fig = draw(runs)
  assert [axes.get_title(loc='left') for axes in fig.axes] == [
      'Loss', 'Accuracy', 'Learning rate']
  for axes in fig.axes:
    assert len({line.get_color() for line in axes.lines}) == num_runs
  assert labels(fig) == [*runs, 'train', 'val']
  with Image.open(tmp_path / 'curves.png') as picture:
    assert picture.width > 1000


def test_nothing_is_clipped_and_the_legend_covers_no_panel(draw):
  runs = {f'quite a long name of a stage {i}': make_rows(scale=10.0 ** i)
          for i in range(5)}
  fig = draw(runs)
  legend = fig.legends[0].get_window_extent()
  boxes = [axes.get_tightbbox() for axes in fig.axes]
  assert not any(legend.overlaps(box) for box in boxes)
  for box in [legend, *boxes]:
    assert box.x0 >= 0 and box.x1 <= fig.bbox.width
    assert box.y0 >= 0 and box.y1 <= fig.bbox.height
  for one, other in itertools.combinations(boxes, 2):
    assert not one.overlaps(other)


@pytest.mark.parametrize('last,scale', [(0.5, 'linear'), (0.001, 'log')])
def test_losses_over_decades_have_a_log_scale(last, scale, draw):
  rows = [{'step': 1, 'train/loss': 1.0}, {'step': 2, 'train/loss': last}]
  assert draw({'run': rows}).axes[0].get_yscale() == scale


def test_runs_without_metrics_are_an_error(tmp_path):
  with pytest.raises(ValueError, match=r'Nothing to draw.*train/loss.*empty'):
    training_curves.draw(
        {'empty': []}, tmp_path / 'curves.png', declared=DECLARED)
  assert not (tmp_path / 'curves.png').exists()


@pytest.mark.parametrize('suffix', ['svg', 'pdf'])
def test_the_suffix_determines_the_format(suffix, tmp_path):
  path = tmp_path / f'curves.{suffix}'
  training_curves.draw({'run': make_rows()}, path, declared=DECLARED)
  assert path.read_bytes()[:5] in (b'<?xml', b'%PDF-')


def test_png_files_have_a_copy_in_the_format_of_matplotlibs_settings(tmp_path):
  with matplotlib.rc_context({'savefig.format': 'pdf'}):
    for name in ('curves.png', 'other.svg'):
      training_curves.draw(
          {'run': make_rows()}, tmp_path / name, declared=DECLARED)
  assert {path.name for path in tmp_path.iterdir()} == {
      'curves.png', 'curves.pdf', 'other.svg'}
