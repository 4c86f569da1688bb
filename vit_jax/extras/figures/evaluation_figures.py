"""Figures of the result of an evaluator."""

from collections.abc import Iterator
from typing import Any

from etils import epath

from vit_jax import console
from vit_jax.evals import evaluator
from vit_jax.extras.figures import prediction_figures


def draw(
    name: str, result: evaluator.Result, output: epath.Path,
) -> Iterator[epath.Path]:
  """Draws the tables and mistakes of a result; yields the files it wrote.

  Args:
    name: name of the evaluator: title and file name of the figures.
    result: what it returned.
    output: folder of the figures.
  """
  output.mkdir(parents=True, exist_ok=True)
  path = output / f'{name}.png'
  names = result.class_names or ()
  options: dict[str, Any] = {'title': name, 'names': names}
  for kind, table in result.tables.items():
    match kind:
      case 'reliability':
        prediction_figures.reliability(table, path, title=name)
      case 'roc':
        prediction_figures.curves(
            table, path, areas=(result.tables['class_roc_auc'],
                                result.tables['class_average_precision']),
            **options)
      case 'confusion':
        prediction_figures.confusion(table, path, **options)
      case 'predictions':
        prediction_figures.scatter(table, path, **options)
      case 'class_iou':
        images = result.images()  # A third each: images, labels, predictions.
        count = len(images) // 3
        classes = [values[..., 0] for values in images[count:]]
        prediction_figures.segmentation(
            images[:count], {'label': classes[:count],
                             'prediction': classes[count:]}, path,
            iou=table, **options)
      case _:
        continue
    yield path
  if result.mistakes:
    of_mistakes = output / f'{name}_mistakes.png'
    images, files = zip(*(mistake.read() for mistake in result.mistakes))
    prediction_figures.mistakes(
        images,
        [f'{console.shorten(file, 26)}\n{result.name_of(m.label)}, predicted:\n'
         f'{result.name_of(m.prediction)} '
         f'({console.format_percent(m.confidence)})'
         for file, m in zip(files, result.mistakes)],
        of_mistakes, title=name)
    yield of_mistakes
