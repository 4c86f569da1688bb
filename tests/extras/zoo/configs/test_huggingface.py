"""Settings of Hugging Face's JSON files are applied, or refused."""

import pytest

from tests.extras.zoo import zoo_models
from vit_jax.data.images import ops as ops_lib
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import resize_and_crop

HF = {'model_type': 'vit', 'hidden_size': 12, 'num_attention_heads': 3}
LABELS = {'id2label': zoo_models.labels()}
BASE = {**HF, 'architectures': ['ViTModel']}


def load(folder, config, processor=None, **settings):
  return foreign.load(zoo_models.write_folder(
      folder, 'huggingface', config, processor, **settings))


def test_a_folder_sets_what_shapes_do_not(tmp_path):
  loaded = load(tmp_path, {
      **HF, **LABELS, 'num_hidden_layers': 2, 'intermediate_size': 20,
      'image_size': 32, 'hidden_act': 'gelu_pytorch_tanh',
      'layer_norm_eps': 1e-7}, {
          'size': {'height': 32, 'width': 32}, 'image_mean': [0.1, 0.2, 0.3],
          'image_std': [0.4, 0.5, 0.6], 'resample': 3})
  assert (loaded.config.num_heads, loaded.config.gelu,
          loaded.config.layer_norm_epsilon) == (3, 'tanh', 1e-7)
  assert loaded.preprocess == resize_and_crop.parse({
      'resolution': 32, 'mean': (0.1, 0.2, 0.3), 'std': (0.4, 0.5, 0.6),
      'interpolation': 'bicubic', 'labels': [*LABELS['id2label'].values()]})


def test_a_base_model_has_a_tanh_pooler_and_no_labels(tmp_path):
  pooler = {'representation_layer': True, 'num_classes': 0}
  assert load(tmp_path, BASE, **pooler).config.representation_layer
  with pytest.raises(ValueError, match="pooler_act is 'relu', but"):
    load(tmp_path, {**BASE, 'pooler_act': 'relu'}, **pooler)
  loaded = load(tmp_path, {**BASE, **LABELS}, num_classes=0)
  assert (loaded.config.num_classes, loaded.preprocess.labels) == (0, ())
  # A classifier does not use its pooler, but must have its head.
  assert load(tmp_path, {**HF, 'pooler_act': 'relu'}).config.num_classes == 5
  with pytest.raises(ValueError, match=r'expected \(5,\), found \(0,\)'):
    load(tmp_path, {**HF, **LABELS}, num_classes=0)


@pytest.mark.parametrize(('declared', 'activation'), [
    ({}, 'sigmoid'), ({'problem_type': 'regression'}, 'none')])
def test_one_class_has_no_softmax(declared, activation, tmp_path):
  loaded = load(tmp_path, {**HF, **declared}, num_classes=1)
  assert loaded.preprocess.activation == activation


@pytest.mark.parametrize(('processor', 'mean', 'std'), [
    ({'rescale_factor': 1 / 127.5, 'image_mean': [1, 1, 1]}, 0.5, None),
    ({'do_normalize': False}, 0, 1),
    ({'do_rescale': False, 'do_normalize': False}, 0, 1 / 255)])
def test_the_scale_of_pixels_becomes_that_of_images_in_0_to_1(
    processor, mean, std):
  found = huggingface.parse_preprocessor(processor)
  assert found['mean'] == pytest.approx((mean,) * 3)
  assert found.get('std') == (std and pytest.approx((std,) * 3))


def test_a_config_of_two_towers_needs_only_what_differs_from_the_defaults():
  found = huggingface.parse({
      'model_type': 'siglip', 'text_config': {'hidden_size': 3},
      'vision_config': {'hidden_size': 1152, 'num_attention_heads': 16}})
  assert found.families == ('siglip',)
  assert found.model == {'width': 1152, 'num_heads': 16}
  found = huggingface.parse({'model_type': 'clip', 'vision_config': {}})
  assert found.model == {'num_heads': 12, 'gelu': 'quick'}


@pytest.mark.parametrize(('processor', 'ops'), [
    # The size of an old DeiT is a square, that of an old CLIP the shorter side.
    ({'feature_extractor_type': 'DeiTFeatureExtractor', 'size': 256},
     [ops_lib.Resize(256), ops_lib.CentralCrop(224)]),
    ({'feature_extractor_type': 'CLIPFeatureExtractor', 'size': 256},
     [ops_lib.Resize(shorter=256, rounding='torchvision'),
      ops_lib.CentralCrop(224)]),
    ({'size': {'shortest_edge': 256}, 'resample': 3,
      'crop_size': {'height': 224, 'width': 192}},
     [ops_lib.Resize(shorter=256, method='bicubic', rounding='torchvision'),
      ops_lib.CentralCrop((224, 192))]),
    ({'do_resize': False}, [ops_lib.CentralCrop((224, 224))])])
def test_resizes_and_crops_are_read_as_they_are(processor, ops):
  found = huggingface.parse_preprocessor({
      'do_center_crop': True, 'crop_size': 224, **processor})
  assert resize_and_crop.parse(found).ops == tuple(ops)
