"""Tables of evaluators are drawn."""

from etils import epath
import numpy as np

from vit_jax.evals import evaluator
from vit_jax.extras.figures import evaluation_figures as figures


def test_curves_are_drawn_although_a_class_has_no_examples(tmp_path):
  curves = np.tile(np.linspace(0, 1, 101), (3, 2, 1))
  curves[1] = np.nan
  areas = np.array([0.9, np.nan, 0.8])
  path, = figures.draw('roc', evaluator.Result(
      metrics={}, class_names=tuple('abc'), tables={
          'roc': curves, 'class_roc_auc': areas,
          'class_average_precision': areas}), epath.Path(tmp_path))
  assert path.stat().length > 10_000
