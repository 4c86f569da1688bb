"""The plot of a sweep shows every setting."""

from vit_jax.analysis import plots
from vit_jax.analysis import sweep_plot

FIELD = 'optimizer.learning_rate'


def draw(values, monkeypatch):
  """Returns the axes and the legend texts of a sweep."""
  figures = []
  monkeypatch.setattr(plots, 'save', lambda fig, path: figures.append(fig))
  rows = [{'values': {FIELD: rate}, 'value': value}
          for rate, value in values.items()]
  best = max((row for row in rows if row['value'] is not None),
             key=lambda row: row['value'])
  sweep_plot.sweep({
      'plan': {'grid': {FIELD: list(values)}, 'metric': 'val/accuracy'},
      'grid': rows, 'best': best, 'final': None}, 'sweep.png')
  (fig,) = figures
  return fig.axes[0], {text.get_text() for text in fig.legends[0].get_texts()}


def test_diverged_runs_are_marked(monkeypatch):
  axes, words = draw({0.001: 0.5, 0.01: 0.7, 1.0: None}, monkeypatch)
  assert 'diverged' in words
  (marks,) = [line for line in axes.lines if line.get_label() == 'diverged']
  assert list(marks.get_xdata()) == [2]
  assert axes.get_xlim()[1] > 2
