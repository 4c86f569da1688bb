"""Position embeddings of other sizes are those of the original codes."""

import json

import numpy as np
import pytest

import vit_jax
from vit_jax.extras.zoo import safetensors
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


def positions(grid, prefix=1):
  return np.random.RandomState(0).standard_normal(
      (prefix + grid[0] * grid[1], WIDTH)).astype(np.float32)


def interpolated(array, old, new, method):
  """Interpolates as the code that has the rule."""
  rows = torch.from_numpy(array[1:]).reshape(1, *old, -1).permute(0, 3, 1, 2)
  size = {'size': new}
  if method == 'bicubic_offset':  # Meta's DINO and DINOv2.
    size = {'scale_factor': tuple((n + 0.1) / o for n, o in zip(new, old))}
  found = torch.nn.functional.interpolate(rows, **size, **RULES[method])
  return np.concatenate(
      [array[:1], found.permute(0, 2, 3, 1).reshape(-1, WIDTH).numpy()])


def assert_close(found, expected):
  assert np.abs(np.asarray(found) - expected).max() <= 1e-5 * expected.std()


@pytest.mark.parametrize('method', RULES)
@pytest.mark.parametrize('new', [(9, 9), (16, 20), (37, 37), (24, 10)])
def test_a_rule_computes_what_torch_does(method, new):
  array = positions((16, 16))
  assert_close(positions_lib.resize_positions(
      array, old_grid=(16, 16), new_grid=new, method=method),
               interpolated(array, (16, 16), new, method))


TIMM = {'patch_embed.proj.weight': (WIDTH, 3, 4, 4),
        'patch_embed.proj.bias': (WIDTH,), 'cls_token': (1, 1, WIDTH),
        'norm.weight': (WIDTH,), 'norm.bias': (WIDTH,), **{
            f'blocks.0.{name}': shape for name, shape in {
                'attn.qkv.weight': (3 * WIDTH, WIDTH),
                'attn.qkv.bias': (3 * WIDTH,),
                'attn.proj.weight': (WIDTH, WIDTH), 'attn.proj.bias': (WIDTH,),
                **{f'norm{i}.{end}': (WIDTH,)
                   for i in (1, 2) for end in ('weight', 'bias')},
                'mlp.fc1.weight': (16, WIDTH), 'mlp.fc1.bias': (16,),
                'mlp.fc2.weight': (WIDTH, 16), 'mlp.fc2.bias': (WIDTH,),
            }.items()}}


# Prefix of the names, other arrays, and the rule of the published code.
@pytest.mark.parametrize(('prefix', 'others', 'method'), [
    ('backbone.', {'head.last_layer.weight_v': (5, 4)}, 'bicubic_offset'),
    ('', {'mask_token': (1, WIDTH)}, 'bicubic_offset'),
    ('', {'register_tokens': (1, 4, WIDTH), 'mask_token': (1, WIDTH)}, 'cubic'),
    ('vision_encoder.', {
        'register_tokens': (1, 1, WIDTH), 'mask_token': (1, WIDTH)},
     'bilinear'),
    ('', {'decoder_pos_embed': (1, 10, 4)}, 'bicubic'),
    ('target_encoder.module.', {
        'predictor.module.predictor_pos_embed': (1, 9, 4)}, 'bicubic')],
    ids=['DINO, iBOT', 'DINOv2', 'registers', 'TIPSv2', 'MAE', 'I-JEPA'])
def test_a_state_dict_of_another_size_has_the_rule_of_its_code(
    prefix, others, method, tmp_path):
  rng = np.random.RandomState(0)
  own = {name: shape for name, shape in others.items() if '.' not in name and (
      'decoder' not in name)}
  arrays = {prefix + name: shape for name, shape in {**TIMM, **own}.items()}
  arrays |= {name: shape for name, shape in others.items() if name not in own}
  arrays = {name: torch.from_numpy(rng.standard_normal(shape).astype(
      np.float32)) for name, shape in arrays.items()}
  stored = positions((3, 3))
  arrays[f'{prefix}pos_embed'] = torch.from_numpy(stored)[None]
  torch.save(arrays, tmp_path / 'x.pth')
  ours = vit_jax.load(tmp_path / 'x.pth', log=None, num_heads=2)
  assert (ours.kind, ours.positions) == ('meta', method)
  assert_close(ours.params_for((20, 16))['positions'],
               interpolated(stored, (3, 3), (5, 4), method))


@pytest.mark.parametrize('name', [
    'vit_base_patch16_224', 'flexivit_small', 'vit_base_patch16_radio_v3',
    'vit_so400m_patch16_radio_v4'])
@pytest.mark.parametrize('size', [(96, 96), (32, 80)])
def test_a_timm_model_of_another_size_computes_the_same(
    name, size, torch_models, tmp_path):
  small = {'depth': 1, 'embed_dim': 24, 'num_heads': 2, 'num_classes': 5}
  theirs = torch_models.perturbed(
      timm.create_model(name, **small, img_size=64))
  safetensors.write(tmp_path / 'model.safetensors', torch_models.arrays(theirs))
  (tmp_path / 'config.json').write_text(json.dumps({
      'architecture': name, 'model_args': {**small, 'img_size': 64},
      'num_classes': 5, 'pretrained_cfg': {'num_classes': 5}}))
  again = timm.create_model(
      f'local-dir:{tmp_path}', pretrained=True, img_size=size)
  images = torch_models.images(*size)
  assert_close(vit_jax.load(tmp_path, log=None)(images)['logits'],
               torch_models.logits(again, images))
