"""The number of examples per class is exact."""

import numpy as np

from vit_jax import data
from vit_jax.data.splits import class_sampling as class_sampling_lib

DIGITS = data.open_dataset(data.parse({'source': 'digits'}))


def draw_per_class(count):
  return class_sampling_lib.draw_per_class(DIGITS, count)[0].source


def test_examples_per_class_are_balanced_and_nested():
  few, more = draw_per_class(10), draw_per_class(20)
  indices = few.parts[0][1]
  labels = [few.label(i) for i in range(len(few))]
  assert np.bincount(labels).tolist() == [10] * 10
  assert set(indices) < set(more.parts[0][1])
  assert few[3]['label'] == few.label(3) == DIGITS.source.label(int(indices[3]))
  # Published results depend on these examples.
  assert indices[:8].tolist() == [22, 48, 69, 86, 93, 96, 102, 108]
  # Samples of several seeds are those of each.
  both, ranks = class_sampling_lib.draw_per_class(DIGITS, 10, seeds=(0, 1))
  for row in ranks:
    assert np.bincount(row[row >= 0]).tolist() == [10] * 10
  assert not np.array_equal(*ranks)
  np.testing.assert_array_equal(both.source.parts[0][1][ranks[0] >= 0], indices)


def test_small_classes_may_be_kept_whole():
  labels = [DIGITS.source.label(i) for i in range(len(DIGITS))]
  drawn, (ranks,) = class_sampling_lib.draw_per_class(
      DIGITS, 143, allow_fewer=True)
  counts = np.minimum(np.bincount(labels), 143)
  assert np.bincount([drawn.source.label(i) for i in range(len(drawn))]
                     ).tolist() == counts.tolist()
  assert min(ranks) == 0 and max(ranks) == 142
