"""NaFlex models of timm and transformers compute the same at any grid."""

import json

import numpy as np
import pytest

from tests.libraries import test_huggingface
import vit_jax

torch = pytest.importorskip('torch', reason='torch is not installed')
timm = pytest.importorskip('timm', reason='timm is not installed')
transformers = pytest.importorskip(
    'transformers', reason='transformers is not installed')

TIMM = {'depth': 2, 'embed_dim': 48, 'num_heads': 4, 'num_classes': 5,
        'patch_size': 4, 'pos_embed_grid_size': (8, 8)}
VISION = {'hidden_size': 24, 'num_hidden_layers': 2, 'num_attention_heads': 2,
          'intermediate_size': 48, 'patch_size': 4, 'num_patches': 64}
TEXT = {**test_huggingface.TEXT, 'hidden_size': 24}
# That of the position embeddings, others of each orientation, and a larger one.
SIZES = [(32, 32), (48, 24), (20, 40), (16, 32), (40, 64)]


def of_timm(model, images):
  """Returns logits of flat patches with their coordinates."""
  flat, (rows, columns) = timm.models.naflexvit.batch_patchify(
      torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), (4, 4))
  indices = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
  with torch.no_grad():
    return model.eval()(
        flat, patch_coord=indices.expand(len(images), -1, -1),
        patch_valid=torch.ones(flat.shape[:2], dtype=torch.bool)).numpy()


@pytest.mark.parametrize(('name', 'settings'), [
    *((name, {}) for name in timm.list_models('naflexvit_*')),
    ('naflexvit_base_patch16_gap', {'pos_embed_grid_size': (4, 9)}),
    ('naflexvit_base_patch16_gap', {
        'pos_embed_antialias': False, 'pos_embed_ar_preserving': True}),
    ('naflexvit_base_patch16_map', {
        'class_token': True, 'qk_norm': True, 'pool_include_prefix': True,
        'attn_pool_num_heads': 2, 'attn_pool_mlp_ratio': 2.0}),
    ('naflexvit_base_patch16_parfac_gap', {
        'pos_embed_ar_preserving': False, 'fc_norm': False}),
    ('naflexvit_base_patch16_siglip', {
        'pos_embed': 'none', 'pre_norm': True, 'scale_mlp_norm': True,
        'proj_bias': False, 'act_layer': 'gelu'})], ids=str)
def test_a_model_of_timm(name, settings, torch_models, tmp_path):
  arguments = {**TIMM, **settings}
  theirs = torch_models.perturbed(timm.create_model(name, **arguments))
  arrays = torch_models.arrays(theirs)
  torch_models.write(tmp_path / 'x', arrays, name, arguments)
  ours = vit_jax.load(tmp_path / 'x', log=None)
  for size in SIZES:
    images = torch_models.images(*size)
    torch_models.assert_close(ours(images)['logits'], of_timm(theirs, images))
  if ours.config.position != 'factorized':
    return
  again = torch_models.rebuilt(ours, tmp_path / 'out')
  for key, array in torch_models.arrays(again).items():
    np.testing.assert_array_equal(array, arrays[key], err_msg=key)
  np.testing.assert_array_equal(of_timm(again, images), of_timm(theirs, images))
  # Without our metadata, the arguments alone say the same.
  config = json.loads((tmp_path / 'out' / 'config.json').read_text())
  torch_models.write(tmp_path / 'plain', arrays, config['architecture'],
        config['model_args'])
  plain = vit_jax.load(tmp_path / 'plain', log=None)
  assert plain.positions == ours.positions
  np.testing.assert_array_equal(plain(images)['logits'], ours(images)['logits'])


@pytest.mark.parametrize('name', [
    'naflexvit_base_patch16_gap', 'naflexvit_base_patch16_map',
    'naflexvit_base_patch16_siglip', 'naflexvit_base_patch16_radio_v3'])
def test_a_model_is_written_as_a_vit_for_images_of_one_size(
    name, torch_models, tmp_path):
  theirs = torch_models.perturbed(timm.create_model(name, **TIMM))
  torch_models.write(tmp_path / 'x', torch_models.arrays(theirs), name, TIMM)
  again = torch_models.rebuilt(
      vit_jax.load(tmp_path / 'x', log=None), tmp_path / 'out')
  images = torch_models.images(32, 32)
  torch_models.assert_close(
      torch_models.logits(again, images), of_timm(theirs, images))


def inputs_of(images):
  b, height, width, _ = images.shape
  rows, columns = height // 4, width // 4
  flat = images.reshape(b, rows, 4, columns, 4, 3).swapaxes(2, 3)
  return {'pixel_values': torch.from_numpy(
              flat.reshape(b, rows * columns, -1).copy()),
          'pixel_attention_mask': torch.ones(
              b, rows * columns, dtype=torch.int32),
          'spatial_shapes': torch.tensor([[rows, columns]] * b)}


@pytest.mark.parametrize('name', [
    'Siglip2VisionModel', 'Siglip2Model', 'Siglip2ForImageClassification'])
def test_siglip_2(name, torch_models, tmp_path):
  config = transformers.Siglip2VisionConfig(**VISION) if 'Vision' in name else (
      transformers.Siglip2Config(
          vision_config=VISION, text_config=TEXT, num_labels=5))
  theirs = torch_models.perturbed(getattr(transformers, name)(config))
  theirs.save_pretrained(tmp_path / 'x')
  ours = vit_jax.load(tmp_path / 'x', log=None)
  assert ours.preprocess.resolution == (32, 32)
  output = 'logits' if ours.config.num_classes else 'representation'
  for size in SIZES:
    images = torch_models.images(*size)
    torch_models.assert_close(
        ours(images)[output],
        test_huggingface.outputs(theirs, **inputs_of(images)))
