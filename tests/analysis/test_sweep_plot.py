"""The picture of a sweep shows every setting that was tried."""

from vit_jax.analysis import plots
from vit_jax.analysis import sweep_plot

FIELD = 'optimizer.learning_rate'


def draw(values, monkeypatch, *, field=FIELD):
  """Returns the axes and the legend's words of a sweep over learning rates."""
  figures = []
  monkeypatch.setattr(plots, 'save', lambda fig, path: figures.append(fig))
  rows = [{'values': {field: rate}, 'value': value}
          for rate, value in values.items()]
  best = max((row for row in rows if row['value'] is not None),
             key=lambda row: row['value'])
  sweep_plot.sweep({
      'plan': {'grid': {field: list(values)}, 'metric': 'val/accuracy'},
      'grid': rows, 'best': best, 'final': None}, 'sweep.png')
  (fig,) = figures
  return fig.axes[0], {text.get_text() for text in fig.legends[0].get_texts()}


def test_a_run_that_diverged_has_its_place(monkeypatch):
  axes, words = draw({0.001: 0.5, 0.01: 0.7, 1.0: None}, monkeypatch)
  assert 'diverged' in words
  (marks,) = [line for line in axes.lines if line.get_label() == 'diverged']
  assert list(marks.get_xdata()) == [1.0]
  assert axes.get_xlim()[1] > 1.0


def test_nothing_is_said_to_have_diverged_where_nothing_did(monkeypatch):
  axes, words = draw({0.001: 0.5, 0.01: 0.7}, monkeypatch)
  assert words == {'val/accuracy', 'chosen'}
  assert axes.get_xlim()[1] < 1.0


def test_a_value_with_dollars_is_no_formula(monkeypatch):
  axes, _ = draw({'$a$': 0.5, r'$\b$': 0.7}, monkeypatch, field='data.$x$')
  texts = [*axes.get_xticklabels(), axes.xaxis.label]
  assert [text._preprocess_math(text.get_text()) for text in texts] == [
      ('$a$', False), (r'$\b$', False), ('data.$x$', False)]
