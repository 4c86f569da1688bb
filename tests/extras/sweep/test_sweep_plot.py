"""The plot of a sweep shows every setting."""

import pytest

from vit_jax import metrics
from vit_jax.extras import plots
from vit_jax.extras.sweep import sweep_plot

FIELD = 'optimizer.learning_rate'


@pytest.fixture(name='figures')
def _figures(monkeypatch):
  """Figures that are saved."""
  found = []
  monkeypatch.setattr(plots, 'save', lambda fig, path: found.append(fig))
  return found


def test_diverged_runs_are_marked(figures):
  rows = [{'values': {FIELD: rate}, 'value': value} for rate, value in (
      (0.001, 0.5), (0.01, 0.7), (1.0, None))]
  sweep_plot.sweep({
      'plan': {'grid': {FIELD: [0.001, 0.01, 1.0]}, 'metric': 'val/accuracy'},
      'grid': rows, 'best': rows[1], 'final': None}, 'sweep.png', percent=True)
  (fig,) = figures
  assert 'diverged' in {text.get_text() for text in fig.legends[0].get_texts()}
  (marks,) = [line for line in fig.axes[0].lines
              if line.get_label() == 'diverged']
  assert list(marks.get_xdata()) == [2]
  assert fig.axes[0].get_xlim()[1] > 2


def test_each_task_has_a_panel_and_each_row_a_line(figures):
  sweep_plot.cells({'columns': 'images per class', 'cells': [
      {'panel': panel, 'row': row, 'column': column, 'metric': 'test/accuracy',
       'mean': mean, 'std': std}
      for panel, row, column, mean, std in (
          ('flowers', 'probe', '5', 0.2, 0.1), ('flowers', 'probe', 'all', 0.4,
                                                None),
          ('flowers', 'tuned', 'all', 0.6, 0.1), ('$', 'probe', '5', 0.1, 0.1))
  ]}, 'sweep.png', declared={'test/accuracy': metrics.ACCURACY})
  (fig,) = figures
  flowers, other = fig.axes
  assert [axes.get_title(loc='left') for axes in fig.axes] == ['flowers', r'\$']
  assert [list(line.lines[0].get_ydata()) for line in flowers.containers] == [
      [0.2, 0.4], [0.6]]
  assert [text.get_text() for text in flowers.get_xticklabels()] == ['5', 'all']
  assert flowers.get_xlabel() == other.get_xlabel() == 'images per class'
  assert {text.get_text() for text in fig.legends[0].get_texts()} == {
      'probe', 'tuned'}
