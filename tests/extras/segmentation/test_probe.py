"""The probe agrees with scikit-learn; IoU is that of scikit-learn."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import linear_model
from sklearn import metrics

from vit_jax.extras.segmentation import probe as segmentation

WIDTH, GRID, PATCH = 5, (3, 2), 4
IGNORED = 9
SHAPE = (GRID[0] * PATCH, GRID[1] * PATCH)


def examples(count, *, seed):
  """Returns tokens, and labels that depend on them; some are ignored."""
  rng = np.random.default_rng(seed)
  tokens = rng.normal(2, 3, (count, *GRID, WIDTH)).astype(np.float32)
  kernel = np.random.default_rng(7).normal(size=(WIDTH, 16 * 3))
  scores = (tokens @ kernel).reshape(count, *GRID, 4, 4, 3)
  scores += rng.normal(0, 2, scores.shape)
  classes = np.array([0, 2, 6])[scores.argmax(-1)]
  labels = classes.transpose(0, 1, 3, 2, 4).reshape(count, *SHAPE)
  labels[rng.uniform(size=labels.shape) < 0.1] = IGNORED
  return tokens, labels.astype(np.uint8)


predict = jax.jit(segmentation.predict, static_argnums=2)


def split(toy, tokens, labels):
  return toy.split(tokens, labels, num_classes=1)


def evaluate(toy, train, test, **settings):
  def predict(params, batch):
    patches = batch['image'].reshape(len(batch['image']), -1, WIDTH)
    # A class token precedes the patches.
    return {'tokens': params['scale'] * jnp.pad(
        patches, ((0, 0), (1, 0), (0, 0)), constant_values=1e6)}

  return toy({'name': 'segmentation', 'ignored': IGNORED, **settings},
             {'train': train, '': test}, predict=predict, grid=GRID)(toy.params)


def by_hand(tokens, labels, test, *, penalty):
  """Returns predictions with scikit-learn, from one-hot labels of pixels."""
  x = tokens.reshape(-1, WIDTH).astype(np.float64)
  mean, std = x.mean(0), x.std(0) + 1e-5
  classes = np.setdiff1d(labels, [IGNORED])
  cells = labels.reshape(-1, GRID[0], PATCH, GRID[1], PATCH).transpose(
      0, 1, 3, 2, 4).reshape(len(x), -1)
  ridge = linear_model.Ridge(alpha=penalty * len(x))
  ridge.fit((x - mean) / std, (cells[..., None] == classes).reshape(len(x), -1))
  scores = ridge.predict((test.reshape(-1, WIDTH) - mean) / std)
  found = classes[scores.reshape(
      -1, *GRID, PATCH, PATCH, len(classes)).argmax(-1)]
  return found.transpose(0, 1, 3, 2, 4).reshape(-1, *SHAPE)


@pytest.mark.parametrize('penalty', [1e-3, 0.5])
def test_metrics_are_those_of_scikit_learn(toy, penalty):
  tokens, labels = examples(30, seed=0)
  test_tokens, test_labels = examples(9, seed=1)
  test_labels[0, 0, 0] = 4  # Never predicted: not in the training data.
  result = evaluate(
      toy, split(toy, tokens, labels), split(toy, test_tokens, test_labels),
      penalty=penalty, classes=['sky', 'sea'])
  expected = by_hand(tokens, labels, test_tokens, penalty=penalty)
  known = test_labels != IGNORED
  iou = metrics.jaccard_score(test_labels[known], expected[known], average=None)
  recall = metrics.recall_score(
      test_labels[known], expected[known], average=None,
      labels=np.unique(test_labels[known]))
  assert result.metrics == pytest.approx({
      'mean_iou': iou.mean(), 'mean_accuracy': recall.mean(), 'examples': 9,
      'pixel_accuracy': np.mean(test_labels[known] == expected[known])})
  assert 0.3 < iou.mean() < 0.9
  np.testing.assert_allclose(
      result.tables['class_iou'][[0, 2, 4, 6]], iou, rtol=1e-5)
  assert np.isnan(result.tables['class_iou'][[1, 3, 5]]).all()
  assert result.class_names[:3] == ('sky', 'sea', 'class 2')
  drawn = result.images()
  assert len(drawn) == 3 * 4  # The images of the first batch.
  for i in range(4):
    np.testing.assert_array_equal(drawn[i], test_tokens[i])
    np.testing.assert_array_equal(
        drawn[4 + i][..., 0], np.where(known[i], test_labels[i], 255))
    np.testing.assert_array_equal(drawn[8 + i][..., 0], expected[i])


@pytest.mark.parametrize(('patch', 'cells'), [(14, 2), (6, 3), *(
    pytest.param(*case, marks=pytest.mark.slow) for case in ((5, 1), (16, 4)))])
def test_cells_divide_patches_and_predictions_have_the_size_of_images(
    patch, cells):
  tokens = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 3, 4)),
                       jnp.float32)
  labels = np.zeros((2, 2 * patch, 3 * patch), np.uint8)
  labels[:, 5:] = 1
  total = jax.jit(segmentation.moments)(tokens, labels, jnp.ones(2))
  assert total.shape == (5, 5 + cells**2 * segmentation.VALUES)
  probe = segmentation.fit(np.asarray(total), penalty=1.0, where='toy')
  assert probe[0].shape == (4, cells, cells, 2)
  found = predict(probe, tokens, labels.shape[1:])
  assert found.shape == labels.shape and set(np.unique(found)) <= {0, 1}


def test_scores_are_interpolated_between_patches():
  # One feature, which is the score of class 3; class 0 scores one half.
  probe = (jnp.asarray([[[[0.0, 1.0]]]]), jnp.asarray([[[0.5, 0.0]]]),
           jnp.asarray([0, 3]))
  tokens = jnp.asarray([0.0, 1.0, 0.0]).reshape(1, 1, 3, 1)
  found = predict(probe, tokens, (4, 12))
  assert found[0, 0].tolist() == [0] * 4 + [3] * 4 + [0] * 4
  # 3/8 of the way to the bright patch, its score is above one half.
  found = predict(probe, 3 * tokens, (4, 12))
  assert found[0, 0].tolist() == [0] * 3 + [3] * 6 + [0] * 3


def test_pixels_without_a_class_count_nowhere(toy):
  """Neither in masks as stored, with padding, nor as the objective has them."""
  tokens, labels = examples(8, seed=0)
  unknown = np.where(labels == IGNORED, 255, labels)
  padded = labels.copy()
  padded[:, :3] = unknown[:, :3]
  expected, stored = (evaluate(toy, one, one).metrics for one in (
      split(toy, tokens, each) for each in (unknown, padded)))
  assert stored == expected
  masks = split(toy, tokens, unknown)
  masks = dataclasses.replace(masks, dataset=dataclasses.replace(
      masks.dataset, masks=True, ignored=6, class_names=('sky', 'sea')))
  for ignored in (6, 255):  # 6 was replaced, and 6 is a class again.
    result = evaluate(toy, masks, masks, ignored=ignored)
    assert result.metrics == expected
    assert result.class_names[:3] == ('sky', 'sea', 'class 2')
  with pytest.raises(ValueError, match='ignored is 9, but that of the obj'):
    evaluate(toy, masks, masks)
