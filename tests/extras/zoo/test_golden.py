"""Models agree with other implementations that use the same weights."""

import json
import pathlib

import numpy as np
import pytest

from tests.extras.zoo import zoo_models
import vit_jax
from vit_jax.extras.zoo import safetensors
from vit_jax.weights.formats import npz

GOLDEN = pathlib.Path(__file__).parents[2] / 'golden'
FILES = sorted(path.stem for path in GOLDEN.glob('*.npz'))
MODERN = sorted(f'{path.parent.name}/{path.stem}' for path in (
    *GOLDEN.glob('modern/*.npz'), *GOLDEN.glob('toys/*.npz')))
HUGGINGFACE = sorted(path.stem for path in GOLDEN.glob('huggingface/*.npz'))
QUICK = ('beit_base_patch16_224', 'radio_v3', 'sapiens2', 'hf-beit', 'hf-clip',
         'dpwee_patch16_reg1_gap_256', 'dinov3_vit', 'siglip2')
SLOW = pytest.mark.slow


def load(folder, name, arrays):
  """Loads the weights and config.json of a golden file from a folder."""
  folder.mkdir()
  with np.load(GOLDEN / f'{name}.npz') as file:
    config = json.loads(str(file['config']))
  return vit_jax.load(zoo_models.write_folder(
      folder, 'timm', config, found=arrays), log=None)


def output(model, images):
  return model(images)[
      'logits' if model.config.num_classes else 'representation']


def assert_close(found, expected, tolerance=1e-5):
  assert np.abs(np.asarray(found) - expected).max() <= (
      tolerance * expected.std())


def assert_saved(written, arrays, *, changed=()):
  """Checks the names and values of saved arrays; `changed` may differ."""
  assert set(written.shapes) == set(arrays)
  for key in set(arrays) - {*changed}:
    assert np.array_equal(written.read(key), arrays[key]), key


def check_same_logits(model, images, folder, start):
  config = json.loads((folder / 'config.json').read_text())
  kind = config.get('architecture') or config['model_type']
  assert kind.startswith(start) and kind.rpartition('_')[0] != 'siglip2'
  again = vit_jax.load(folder, log=None)
  for name, values in model(images).items():
    np.testing.assert_array_equal(again(images)[name], values)


@pytest.mark.slow  # Eleven models at full size.
@pytest.mark.parametrize('name', FILES)
def test_logits_are_those_of_the_other_implementation(name, golden, tmp_path):
  arrays, images, logits = golden(name)
  # No suffix: the content alone says what the file is.
  of_torch = name.startswith(('timm-', 'hf-'))
  (safetensors if of_torch else npz).write(tmp_path / 'weights', arrays)
  # Its size is in no table, and Hugging Face keeps heads in config.json.
  settings = {'num_heads': 4} if name.startswith('hf-') else {}
  model = vit_jax.load(tmp_path / 'weights', log=None, **settings)
  # After 50 convolutions, timm's float32 is 2.5e-5 from its own float64.
  assert_close(model(images)['logits'], logits,
               6e-5 if 'resnetv2' in name else 1e-5)
  # And out again, under exactly the names that came in.
  if name.startswith('hf-'):
    return
  form = 'timm' if of_torch else 'npz'
  target = tmp_path / 'out'
  model.save(target, form=form)
  written = (safetensors.open_file(target / 'model.safetensors') if of_torch
             else npz.open_file(target))
  assert_saved(written, arrays)


@pytest.mark.parametrize('name', [pytest.param(
    name, marks=[SLOW] * (name.startswith('modern') or not name.endswith(QUICK))
    + [pytest.mark.large] * any(size in name for size in (
        'modern/timm-vit_base', 'medium', 'large', 'so150m')))
                                  for name in MODERN])
def test_logits_are_those_of_a_backbone_with_its_config(name, golden, tmp_path):
  arrays, images, logits = golden(name)
  model = load(tmp_path / 'in', name, arrays)
  assert_close(model(images)['logits'], logits)
  model.save(tmp_path / 'out', form='timm')
  # A ViT for images of one size.
  if 'naflex' in name and 'parfac' not in name:
    check_same_logits(model, images, tmp_path / 'out', 'vit_')
    return
  written = safetensors.open_file(tmp_path / 'out' / 'model.safetensors')
  # We add the position embeddings of registers to the registers.
  assert_saved(written, arrays, changed=(
      {'reg_token', 'pos_embed'} if 'so150m' in name else
      # Grouped heads are written once for each of their queries.
      [key for key in arrays if '1.attn.k_' in key or '1.attn.v_' in key]
      if 'sapiens2' in name else ()))


@pytest.mark.parametrize('name', [pytest.param(
    name, marks=[SLOW] * (not name.endswith(QUICK))) for name in HUGGINGFACE])
def test_outputs_are_those_of_a_hugging_face_model(name, golden, tmp_path):
  arrays, images, expected = golden(f'huggingface/{name}')
  model = load(tmp_path / 'in', f'huggingface/{name}', arrays)
  assert_close(output(model, images), expected)


@pytest.mark.parametrize(('name', 'registers'), [
    pytest.param('torch-vit5', 4, marks=SLOW), ('torch-radio', 9)])
def test_features_are_those_of_a_papers_own_code(
    name, registers, golden, tmp_path):
  arrays, images, expected = golden(f'papers/{name}')
  safetensors.write(tmp_path / 'x', arrays)
  model = vit_jax.load(tmp_path / 'x', log=None, resolution=32, num_heads=2)
  assert_close(output(model, images), expected)
  assert model.config.registers == registers


def test_the_image_tower_of_a_big_vision_file_is_read(golden, tmp_path):
  arrays, images, expected = golden('big_vision/siglip')
  npz.write(tmp_path / 'x.npz', arrays)
  assert_close(vit_jax.load(tmp_path / 'x.npz', log=None)(images)[
      'representation'], expected)


@pytest.mark.parametrize(('patch', 'key'), [
    pytest.param(16, 'logits', marks=SLOW), (4, 'logits_4')])
def test_flexivit_of_big_vision_computes_the_same_with_any_patch_size(
    patch, key, golden, tmp_path):
  arrays, images, _ = golden('big_vision/flexivit')
  with np.load(GOLDEN / 'big_vision' / 'flexivit.npz') as file:
    expected = file[key]
  npz.write(tmp_path / 'x.npz', arrays)
  model = vit_jax.load(tmp_path / 'x.npz', log=None, patch=patch,
                       resolution=48, positions='bilinear')
  # The grid of the position embeddings stays.
  assert (model.config.patch, model.resolution) == (patch, (4 * patch,) * 2)
  assert_close(model(images)['logits'], expected)


def test_a_naflex_model_of_big_vision_is_refused_by_name(golden, tmp_path):
  arrays, _, _ = golden('big_vision/siglip')
  kernel = arrays['params/img/embedding/kernel']
  arrays['params/img/embedding/kernel'] = kernel.reshape(-1, kernel.shape[-1])
  npz.write(tmp_path / 'x.npz', arrays)
  with pytest.raises(ValueError, match='NaFlex.*only in files of timm'):
    vit_jax.load(tmp_path / 'x.npz', log=None)
