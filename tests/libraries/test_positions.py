"""Position embeddings of other sizes are those of the original codes."""

import numpy as np
import pytest

import vit_jax
from vit_jax.models import positions as positions_lib

torch = pytest.importorskip('torch', reason='torch is not installed')
timm = pytest.importorskip('timm', reason='timm is not installed')

WIDTH = 8
# Arguments of torch.nn.functional.interpolate.
RULES = {
    'bilinear': {'mode': 'bilinear', 'antialias': True},
    'bilinear_sharp': {'mode': 'bilinear'},
    'cubic': {'mode': 'bicubic', 'antialias': True},
    'bicubic': {'mode': 'bicubic'}, 'bicubic_offset': {'mode': 'bicubic'}}


def interpolated(array, old, new, method):
  """Interpolates as the code that has the rule."""
  rows = torch.from_numpy(array[1:]).reshape(1, *old, -1).permute(0, 3, 1, 2)
  size = {'size': new}
  if method == 'bicubic_offset':  # Meta's DINO and DINOv2.
    size = {'scale_factor': tuple((n + 0.1) / o for n, o in zip(new, old))}
  found = torch.nn.functional.interpolate(rows, **size, **RULES[method])
  return np.concatenate(
      [array[:1], found.permute(0, 2, 3, 1).reshape(-1, WIDTH).numpy()])


@pytest.mark.parametrize('method', RULES)
@pytest.mark.parametrize('new', [(9, 9), (16, 20), (37, 37), (24, 10)])
def test_a_rule_computes_what_torch_does(method, new, torch_models):
  array = np.random.RandomState(0).standard_normal(
      (1 + 16 * 16, WIDTH)).astype(np.float32)
  torch_models.assert_close(
      positions_lib.resize_positions(
          array, old_grid=(16, 16), new_grid=new, method=method),
      interpolated(array, (16, 16), new, method))


# Prefix of the names, other arrays, and the rule of the published code.
@pytest.mark.parametrize(('prefix', 'others', 'method'), [
    ('backbone.', {'head.last_layer.weight_v': (5, 4)}, 'bicubic_offset'),
    ('', {'mask_token': (1, WIDTH)}, 'bicubic_offset'),
    ('', {'register_tokens': (1, 4, WIDTH), 'mask_token': (1, WIDTH)}, 'cubic'),
    ('vision_encoder.', {
        'vision_encoder.register_tokens': (1, 1, WIDTH),
        'vision_encoder.mask_token': (1, WIDTH)}, 'bilinear'),
    ('', {'decoder_pos_embed': (1, 10, 4)}, 'bicubic'),
    ('target_encoder.module.', {
        'predictor.module.predictor_pos_embed': (1, 9, 4)}, 'bicubic')],
    ids=['DINO, iBOT', 'DINOv2', 'registers', 'TIPSv2', 'MAE', 'I-JEPA'])
def test_a_state_dict_of_another_size_has_the_rule_of_its_code(
    prefix, others, method, torch_models, tmp_path):
  arrays = timm.create_model(
      'vit_tiny_patch16_224', img_size=12, patch_size=4, embed_dim=WIDTH,
      depth=1, num_heads=2, num_classes=0).state_dict()
  stored = arrays['pos_embed'][0].numpy()
  torch.save({
      **{prefix + name: array for name, array in arrays.items()},
      **{name: torch.randn(shape) for name, shape in others.items()}},
             tmp_path / 'x.pth')
  ours = vit_jax.load(tmp_path / 'x.pth', log=None, num_heads=2)
  assert (ours.kind, ours.positions) == ('meta', method)
  torch_models.assert_close(
      ours.params_for((20, 16))['positions'],
      interpolated(stored, (3, 3), (5, 4), method))


@pytest.mark.parametrize('name', [
    'vit_base_patch16_224', 'flexivit_small', 'vit_base_patch16_radio_v3',
    'vit_so400m_patch16_radio_v4'])
@pytest.mark.parametrize('size', [(96, 96), (32, 80)])
def test_a_timm_model_of_another_size_computes_the_same(
    name, size, torch_models, tmp_path):
  small = {'depth': 1, 'embed_dim': 24, 'num_heads': 2, 'num_classes': 5}
  theirs = torch_models.perturbed(timm.create_model(name, **small, img_size=64))
  torch_models.write(
      tmp_path, torch_models.arrays(theirs), name, {**small, 'img_size': 64},
      num_classes=5, pretrained_cfg={'num_classes': 5})
  again = timm.create_model(
      f'local-dir:{tmp_path}', pretrained=True, img_size=size)
  images = torch_models.images(*size)
  torch_models.assert_close(
      vit_jax.load(tmp_path, log=None)(images)['logits'],
      torch_models.logits(again, images))
