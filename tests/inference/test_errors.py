"""Images, names and options that do not suit a model, or that do not exist."""

import functools
import re

import numpy as np
import pytest

from tests import own_data
from tests import random_models
import vit_jax
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.inference import image_files
from vit_jax.inference import images as images_lib
from vit_jax.inference import load as load_lib
from vit_jax.inference import model as model_lib
from vit_jax.inference import predictions

# Each row of a table: the arguments of a call, and a part of its error.
MOVE, CONVERT = ' Use numpy.moveaxis', ' PIL.Image.fromarray'
SHAPES = [
    (shape, channels, rf'be \[height, width, {channels}\].* is '
     rf'{re.escape(str([*shape]))}\. Channels come last\.{hint}')
    for shape, channels, hint in (
        ((3, 8, 8), 3, MOVE), ((2, 3, 8, 8), 3, MOVE), ((1, 8, 8), 1, MOVE),
        ((8, 8), 3, CONVERT), ((8, 8, 1), 3, CONVERT), ((8, 8, 4), 3, CONVERT),
        ((8, 8, 3), 1, CONVERT), ((5, 8, 8), 1, '$'), ((8,), 3, '$'),
        ((), 3, '$'), ((8, 8, 13), 3, '$'), ((1, 2, 8, 8, 3), 3, '$'))]
IMAGES = [
    (np.zeros((3, 32, 32), np.uint8), r'is \[3, 32, 32\]. Channels come last'),
    (np.full((32, 32, 3), 7.0), 'from 7 to 7. Divide it by 255'),
    (np.full((32, 32, 3), np.nan), 'from nan to nan'),
    (np.zeros((32, 32, 3), np.int32), 'but is int32'),
    (np.zeros((32, 32, 3), np.uint16), 'array / 65535'),
    (np.zeros((0, 4, 3), np.uint8), 'has no pixels'),
    ('{root}/notes.txt', 'notes.txt: not an image'),
    ('{root}/missing.jpg', 'No such file .*missing.jpg')]
PATHS = [
    ('{root}/*.gif', 'no image found'), ('{root}/*.txt', 'no image found'),
    ('{root}/x', 'no image found, but 1 .heic. Image'),
    ('zip://y::/x', 'Cannot read zip://y::/x .* only local'),
    ('{root}/b.png', 'no such file or folder')]
BATCHES = [
    (np.zeros((32, 32, 3), np.float32),
     r'but are \[32, 32, 3\] float32. .* come last'),
    (np.zeros((2, 32, 32, 3), np.uint8),
     r'mean .*0.5.* but are \[2, 32, 32, 3\] uint8'),
    (np.zeros((2, 32, 32, 3), object), '3] object'),
    (np.full((2, 32, 32, 3), 'x'), '3] <U1'),
    (np.zeros((1, 32, 32, 3), np.float32).tolist(), r'but are \[\] list'),
    ('x.jpg', r'but are \[\] str'), (None, r'but are \[\] NoneType'),
    (np.zeros((2, 30, 32, 3), np.float32), 'does not divide into patches')]
LAYERS = [
    ('tokns', "Did you mean 'tokens'"),
    *((layer, 'a number from 1 to 2 may follow') for layer in (
        'tokens:0', 'patches:3', 'cls:x', 'pooled:1', 'logits:1', 'logits:'))]
NAMES = [
    (('ant', 'cat', 'dog'), '(?s)only here: ant.*only here: owl'),
    (('cat', 'owl', 'owl'), 'several times: owl'),
    (('cat', 'dog'), 'labels holds 2 names .* model has 3 classes')]
OPTIONS = [
    ({'top_k': 0}, 'top_k must be at least 1'),
    ({'activation': 'sigmoit'}, "Did you mean 'sigmoid'")]
PIXELS = np.zeros((32, 32, 3), np.uint8)
CALL = model_lib.Model.__call__
CALL = getattr(CALL, '__wrapped__', CALL)  # Without our checks of types.


@functools.cache
def make(labels=tuple('abcde')):
  return random_models.make(
      {**random_models.TINY, 'num_classes': len(labels)}, side=32,
      labels=labels)


@pytest.mark.parametrize(('call', 'arguments', 'message'), [
    (call, arguments, message) for call, rows in (
        (lambda shape, channels: images_lib.is_single(
            np.zeros(shape, np.uint8), channels=channels), SHAPES),
        (lambda image: images_lib.read(
            image, preprocessing_lib.Preprocess(resolution=(32, 32))), IMAGES),
        (lambda path: image_files.find([path]), PATHS),
        (lambda images: CALL(make(), images), BATCHES),
        (lambda layer: make().features(PIXELS, layer=layer), LAYERS),
        (lambda path: make().features(path),
         [('{root}/none', 'No such file or .*none')]),
        (lambda: make().predict([]), [['No images']]),
        (lambda: make(()).predict(PIXELS), [['The model has no trained head']]),
        (lambda: make(()).features(PIXELS, layer='logits'),
         [['has no trained head, and so no logits']]),
        (lambda names: load_lib.rename(make(('cat', 'dog', 'owl')), names),
         NAMES),
        (lambda options: predictions.top_classes(
            np.zeros((1, 4)), labels=(), **{
                'activation': 'softmax', 'top_k': 5, **options}), OPTIONS),
        (lambda: vit_jax.create('B/17x'), [["SIZE/PATCH.*'B/17x'"]]),
        (lambda: vit_jax.load('photos', channels=1, mean=0.5, std=0.5),
         [[r'patches/kernel.*: expected \(4, 4, 1, 128\)']]),
    ) for *arguments, message in rows])
def test_an_error_names_its_cause(tmp_path, call, arguments, message):
  own_data.write(tmp_path, 'notes.txt', 'x/1.heic')
  with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
    call(*(one.replace('{root}', str(tmp_path)) if isinstance(one, str) else
           one for one in arguments))
  assert isinstance(error.value, FileNotFoundError) == (
      'no such file' in message.lower())
