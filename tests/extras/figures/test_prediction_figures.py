"""Figures of predictions, evaluations and models, for any number of classes."""

from etils import epath
from matplotlib import figure
import numpy as np
from PIL import Image
import pytest

from vit_jax.evals import evaluator
from vit_jax.extras.figures import evaluation_figures as figures
from vit_jax.extras.figures import model_figures
from vit_jax.extras.figures import prediction_figures


@pytest.fixture
def texts(monkeypatch):
  """Collects the texts of each saved figure."""
  found = []

  def savefig(self, file, **options):
    found.extend(t.get_text() for t in self.findobj(
        lambda artist: hasattr(artist, 'get_text')))
    file.write(b'picture')

  monkeypatch.setattr(figure.Figure, 'savefig', savefig)
  return found


@pytest.mark.parametrize('classes', [
    2, 37, pytest.param(1500, marks=pytest.mark.slow)])
def test_confusion_is_drawn_at_any_number_of_classes(tmp_path, classes):
  path = tmp_path / 'confusion.png'
  # No name is a formula.
  prediction_figures.confusion(
      np.random.default_rng(0).integers(0, 30, (classes, classes)), path,
      title='$_$', names=[f'${i}_$' for i in range(classes)])
  assert path.read_bytes().startswith(b'\x89PNG')
  assert path.stat().st_size > 5_000


def test_each_target_has_a_panel(tmp_path, texts):
  pairs = np.array([[[1.0, 2.0], [np.nan, 1.0]], [[3.0, 3.5], [np.nan, 2.0]]])
  path = tmp_path / 'answers.png'
  prediction_figures.scatter(pairs, path, names=['age', 'cost, $'], title='val')
  assert 'age: n = 2, R² = 0.375\nmean absolute error 0.75' in texts
  assert {'val', r'cost, \$: no labels'} <= set(texts)


@pytest.mark.filterwarnings('error')
def test_names_in_any_script_and_images_of_any_kind_are_drawn(tmp_path):
  rng = np.random.default_rng(0)
  images = [rng.integers(0, 256, (8, 8, 3), np.uint8),
            rng.normal(size=(8, 6, 13)).astype(np.float32),
            np.zeros((4, 4, 1), np.uint16)]
  path = tmp_path / 'mistakes.png'
  prediction_figures.mistakes(
      images, ['猫\nas $собака$', 'कुत्ता', 'كلب 😀'], path, columns=2)
  with Image.open(path) as image:
    assert image.size[0] > 300


def test_curves_are_drawn_although_a_class_has_no_examples(tmp_path):
  curves = np.tile(np.linspace(0, 1, 101), (3, 2, 1))
  curves[1] = np.nan
  areas = np.array([0.9, np.nan, 0.8])
  path, = figures.draw('roc', evaluator.Result(
      metrics={}, class_names=tuple('abc'), tables={
          'roc': curves, 'class_roc_auc': areas,
          'class_average_precision': areas}), epath.Path(tmp_path))
  assert path.stat().length > 10_000


@pytest.mark.parametrize(('height', 'width'), [(4, 4), (2, 7)])
def test_tile_centres_have_integer_coordinates(height, width):
  tiles = np.zeros((3, 2, height, width))
  tiles[2, 1] = 1
  whole, (left, right, bottom, top) = model_figures.mosaic(tiles)
  rows, columns = np.nonzero(whole == 1)
  x = left + (columns.mean() + 0.5) * (right - left) / whole.shape[1]
  y = top + (rows.mean() + 0.5) * (bottom - top) / whole.shape[0]
  assert (x, y) == pytest.approx((2, 3))
