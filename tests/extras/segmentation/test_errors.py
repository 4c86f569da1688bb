"""Masks, operations, classes and models that do not fit together."""

import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from tests import own_data
from tests import pictures
from tests import toy as toy_lib
from tests.extras.segmentation import test_mask_reader
from tests.extras.segmentation import test_objective
from tests.extras.segmentation import test_probe
from vit_jax import evals
from vit_jax import objectives
from vit_jax.extras.segmentation import probe

# Each row of a table: the arguments of a call, and a part of its error.
UNFIT = {'op': f'{test_mask_reader.__name__}:Unfit'}
OPERATIONS = [
    ({'train_ops': [{'op': 'resize'}, UNFIT]},
     'data.train_ops has Unfit, which does not apply to masks'),
    ({'train': False, 'eval_ops': [UNFIT]}, 'data.eval_ops has Unfit'),
    *(({name: 0.2}, 'data.mixup and data.cutmix do not apply to masks')
      for name in ('mixup', 'cutmix'))]
MASKS = [
    (pictures.encode(Image.new('RGB', (4, 4))), r'uint8 \[4, 4, 3\] up to 0'),
    (np.full((4, 4), 256), r'int64 \[4, 4\] up to 256; expected one class'),
    (np.full((4, 4), -1), 'expected one class from 0 to 255 per pixel'),
    (np.zeros((4, 4)), r'has pixels float64 \[4, 4\]'),
    (np.zeros((4, 5), np.uint8), '4 x 5 pixels, but the image has 4 x 4'),
    (b'no mask', 'its mask cannot be read: not an image')]
FOLDERS = [
    (['images/a.jpg', 'images/b.jpg', 'masks/a.png'],
     '1 of 2 images .* no mask of the same name in masks/: images/b.jpg'),
    (['images/a.jpg', 'masks/a.png', 'masks/a.tif'],
     'two masks of one image, masks/a.png and masks/a.tif'),
    (['images/a.txt', 'masks/a.png'], 'There are no images in .*/images'),
    (['a.jpg', 'labels/a.png'], 'it holds labels/, a.jpg'),
    ([f'{folder}/{i}.png' for folder in (
        'images/train', 'masks/train', 'images/x', 'masks/x') for i in '01'],
     r'name a split \(train\), but 2 do not: x/0')]
OBJECTIVES = [
    ({'classes': ['a', 'a']}, 'at most 255 different names'),
    ({'classes': ['a', 'b'], 'class_weights': [1.0]}, 'must be 2 numbers'),
    ({'classes': ['a'], 'class_weights': [0.0]}, 'from 0 and not all 0')]
CONFIGS = [
    ({'objective': {'name': 'segmentation'}}, 'objective.classes is empty'),
    ({'model': {}}, 'needs a ViT with a decoder.*init.checkpoint=PATH'),
    ({'objective': {}}, "decoder predicts .* 'supervised' uses no masks"),
    ({'data': {'source': 'digits'}}, 'digits has no segmentation masks'),
    ({'model': {'decoder': {'layers': [1, 3]}}}, 'from 1 to depth=1')]


def build(**changes):
  return toy_lib.build(**{
      'objective': test_objective.OBJECTIVE, 'data': test_objective.DATA,
      'model': {'decoder': {}}, **changes})


def evaluate(toy, token, label):
  """Fits a probe to images, of which one has another token or all a label."""
  tokens, labels = test_probe.examples(4, seed=0)
  tokens[1, 0, 0, 0] = token
  data = test_probe.split(
      toy, tokens, labels if label is None else np.full_like(labels, label))
  test_probe.evaluate(toy, data, data)


@pytest.mark.parametrize(('call', 'arguments', 'message'), [
    (call, arguments, message) for call, rows in (
        (lambda _, __, settings: test_mask_reader.load(
            test_mask_reader.scene(12, 12), **settings), OPERATIONS),
        (lambda *_: test_mask_reader.load(
            test_mask_reader.scene(12, 16), train=False, eval_ops=[
                {'op': 'resize', 'shorter': 12}, {'op': 'central_crop'}],
        ).original_mask(0), [['data.eval_ops: .* need a resize only']]),
        (lambda _, __, mask: test_mask_reader.read(mask, (4, 4)), MASKS),
        (lambda _, root, paths: (
            own_data.write(root, *paths), own_data.open_path(root, 'masks')),
         FOLDERS),
        (lambda _, __, section: objectives.parse(
            {'name': 'segmentation', **section}), OBJECTIVES),
        (lambda _, __, changes: build(**changes), CONFIGS),
        (lambda *_: next(build(objective={
            **test_objective.OBJECTIVE, 'classes': ['ground']}).batches(
                start_step=0)),
         [['value 1, but the 1 classes have the values 0 to 0']]),
        (lambda *_: probe.moments(jnp.zeros((1, 2, 4, 3)), jnp.zeros(
            (1, 20, 21), jnp.uint8), jnp.ones(1)),
         [['20 x 21 pixels do not .* 2 x 4 patch']]),
        (lambda toy, _, *changes: evaluate(toy, *changes), [
            (0.0, test_probe.IGNORED, 'No pixel of evals.test: toy'),
            (np.nan, None, 'toy test has an image whose tokens are NaN')]),
        (lambda *_: evals.parse(
            {'val': {'name': 'segmentation', 'flip': True}}),
         [['does not support flip']]),
    ) for *arguments, message in rows])
def test_an_error_names_its_cause(toy, tmp_path, call, arguments, message):
  with pytest.raises(ValueError, match=message):
    call(toy, tmp_path, *arguments)
