"""One record of image operations, for evaluation and for every other user."""

import numpy as np
import pytest

from tests import pictures
from tests import random_models
from vit_jax import data
from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.data.images import ops as ops_lib
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.extras.zoo.configs import timm
from vit_jax.extras.zoo.configs import timm_export

MODEL = {'width': 8, 'depth': 1, 'mlp_dim': 8, 'num_heads': 2, 'patch': 8,
         'num_classes': 2, 'position': 'none'}
# The sizes of these images are not those of any operation.
SIZES = ((90, 131), (131, 90), (97, 97))
RESIZE, CROP = {'op': 'resize'}, {'op': 'central_crop'}
OPERATIONS = [
    [CROP], [{'op': 'central_crop', 'size': 80}, RESIZE],
    [{'op': 'resize', 'size': 100}, RESIZE],
    [{'op': 'resize', 'shorter': 80, 'method': 'bicubic'}, CROP],
    [{'op': 'resize', 'cover': 76, 'method': 'lanczos'}, CROP],
    [RESIZE, {'op': 'grayscale', 'probability': 1.0}],
    [{'op': 'inception_crop'}],
    [RESIZE, {'op': 'flip'}, {'op': 'color_jitter'}],
    [{'op': 'resize', 'antialias': False}],
    [{'op': 'resize', 'shorter': 75, 'method': 'area',
      'rounding': 'torchvision'}, {**CROP, 'rounding': 'torchvision'}]]
BACKBONE = MODEL | {'name': 'backbone', 'position': 'learned'}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  root = tmp_path_factory.mktemp('images')
  for number, size in enumerate(SIZES):
    (root / 'ab'[number % 2]).mkdir(exist_ok=True)
    pictures.picture(number).resize(size).save(
        root / 'ab'[number % 2] / f'{number}.png')
  return root


@pytest.mark.parametrize(('eval_ops', 'resolution'), [
    *((o, 64) for o in OPERATIONS), (OPERATIONS[3], (48, 72))], ids=str)
def test_evaluation_and_predictions_compute_the_same_logits(
    eval_ops, resolution, folder):
  config = data.parse({
      'source': str(folder), 'split': 'all', 'holdout': 0.5,
      'resolution': resolution, 'eval_ops': eval_ops, 'mean': 0.4,
      'std': [0.2, 0.3, 0.4]})
  dataset = data.open_dataset(config)
  (batch,) = data.eval_batches(config, dataset, batch_size=len(SIZES))
  batch = data.prepare(config, dataset)(batch, None, train=False)
  model = random_models.make(
      MODEL, side=config.size,
      **preprocessing.from_data(schema.to_plain(config)))
  paths = [folder / dataset.source.key(i) for i in range(len(SIZES))]
  (_, outputs), = model.outputs(paths)
  np.testing.assert_allclose(
      outputs['logits'], model(np.asarray(
          config.value_scale.normalize(batch['image'])))['logits'],
      rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('eval_ops', OPERATIONS, ids=str)
def test_plain_data_is_read_back(eval_ops):
  record = preprocessing.parse({'resolution': 64, 'ops': eval_ops})
  assert preprocessing.parse(preprocessing.to_plain(record)) == record


def test_a_new_resolution_scales_the_operations():
  record = preprocessing.parse(
      {'resolution': 224, 'ops': [{'op': 'resize', 'shorter': 256}, CROP]})
  assert record.resized((336, 336)).ops == (
      ops_lib.Resize(shorter=384), ops_lib.CentralCrop((336, 336)))
  # The shorter side of a wide image would not hold a tall crop.
  assert record.resized((448, 224)).ops == (
      ops_lib.Resize(cover=(512, 256)), ops_lib.CentralCrop((448, 224)))


def test_terms_of_timm_change_a_resize_and_crop_only():
  record = preprocessing.parse({'resolution': 224, 'ops': [
      {'op': 'resize', 'shorter': 256, 'method': 'bicubic'}, CROP]})
  assert preprocessing.override(record, {'crop': 0.9}).ops == (
      ops_lib.Resize(shorter=248, method='bicubic'),
      ops_lib.CentralCrop((224, 224)))
  assert preprocessing.override(record, {'interpolation': 'area'}).ops == (
      ops_lib.Resize(shorter=256, method='area'), ops_lib.CentralCrop(224))
  rounded = preprocessing.parse({'resolution': 224, 'ops': [
      {'op': 'resize', 'shorter': 256, 'rounding': 'torchvision'}, CROP]})
  assert preprocessing.override(rounded, {'crop': 1.0}).ops == (
      ops_lib.Resize(shorter=224), ops_lib.CentralCrop(224))
  for other in ([CROP], [{'op': 'resize', 'cover': (256, 300)}, CROP],
                [{'op': 'resize', 'size': (256, 224)}, CROP]):
    cropped = preprocessing.parse({'resolution': 224, 'ops': other})
    with pytest.raises(ValueError, match='not described by .* Override ops'):
      preprocessing.override(cropped, {'crop': 0.9})
  assert preprocessing.override(cropped, {'ops': [RESIZE]}) == (
      preprocessing.Preprocess((224, 224)))


@pytest.mark.parametrize(('crop', 'resized'), [
    (0.9, 248), (0.875, 256), (224 / 248, 248), (1.0, 224)])
def test_the_size_before_the_crop_is_that_of_timm(crop, resized):
  (op, *_) = resize_and_crop.parse({'resolution': 224, 'crop': crop}).ops
  assert op.size == (resized, resized)


@pytest.mark.parametrize(('side', 'before'), [
    (224, 248), (224, 224), (192, 235), (100, 777)])
def test_the_fraction_written_for_timm_gives_the_same_size(side, before):
  model = random_models.make(BACKBONE | {'patch': 4}, side=side, ops=[
          {'op': 'resize', 'shorter': before}, {'op': 'central_crop'}])
  written = timm_export.config_json(model)['pretrained_cfg']
  assert int(side / written['crop_pct']) == before  # As timm computes it.
  resize = resize_and_crop.parse(timm.parse_preprocessing(written)).ops[0]
  assert resize.shorter == before


def test_two_channels_may_share_a_mean():
  found = preprocessing.parse({
      'resolution': 32, 'channels': 2, 'mean': [0.5], 'std': 0.2})
  assert (found.mean, found.std) == ((0.5, 0.5), (0.2, 0.2))
