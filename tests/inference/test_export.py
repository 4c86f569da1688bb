"""A model as one file: what is read back gives the same logits."""

import json

import jax
from jax import export as jax_export
import numpy as np
from PIL import Image
import pytest

import main
from tests import random_models
from vit_jax.inference import export

VIT = {'width': 8, 'depth': 2, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
       'num_classes': 3}
MODELS = {
    'vit': VIT,
    'bfloat16': {**VIT, 'dtype': 'bfloat16', 'remat': 'full',
                 'attention': 'cudnn'},
    'average': {**VIT, 'pooling': 'average'},
    'hybrid': {**VIT, 'backbone': {'depths': (1, 1)}, 'patch': 1},
    'resnet': {'name': 'resnet', 'num_classes': 3, 'backbone': {
        'depths': (1, 1), 'width': 32, 'preactivation': True}},
    'no head': {**VIT, 'num_classes': 0},
}


def make(settings):
  return random_models.make(settings, side=32)


def test_what_is_written_computes_in_float32(tmp_path):
  model = make(MODELS['bfloat16'])
  export.write(model, tmp_path / 'model', form='jax')
  program = jax_export.deserialize(
      bytearray((tmp_path / 'model').read_bytes())).mlir_module()
  assert 'f32' in program and 'bf16' not in program
  # What runs it is held to the same: bfloat16 would differ by more.
  plain = export.in_float32(model)
  assert export.in_float32(plain) is plain and plain.config.remat == 'none'
  assert plain.params is model.params


@pytest.mark.parametrize(('name', 'form'), [
    # What jax.export does not care about is not tried with it.
    *((name, 'jax') for name in ('vit', 'resnet', 'no head')),
    *((name, form) for name in MODELS for form in ('onnx', 'savedmodel'))])
def test_what_is_read_back_gives_the_same_logits(tmp_path, name, form):
  for library in export.LIBRARIES[form]:
    pytest.importorskip(library)
  model = make(MODELS[name])
  path = tmp_path / 'model'
  export.write(model, path, form=form)
  run = export.read(path, form=form)
  for size in (1, 3):  # Any number of images.
    images = np.random.default_rng(size).uniform(
        -1, 1, (size, 32, 32, 3)).astype(np.float32)
    assert export.difference(model, run, images) < 1e-3
    np.testing.assert_allclose(
        run(images)['representation'],
        export.in_float32(model)(images)['representation'],
        atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize('form', ['jax', 'onnx', 'savedmodel'])
def test_what_one_file_does_not_hold_is_a_folder_with_the_weights_beside(
    tmp_path, monkeypatch, caplog, form):
  for library in export.LIBRARIES[form]:
    pytest.importorskip(library)
  # Wide: of an array above 1 MiB, jax2onnx writes a file of its own.
  model = make({**VIT, 'depth': 1, 'mlp_dim': 2**15})
  size = 4 * sum(leaf.size for leaf in jax.tree.leaves(model.params))
  monkeypatch.setattr(export, 'MAX_BYTES', size - 1)
  export.write(model, tmp_path / 'model', form=form)
  (tmp_path / 'model').rename(tmp_path / 'moved')
  run = export.read(tmp_path / 'moved', form=form)
  images = np.random.default_rng(0).uniform(
      -1, 1, (2, 32, 32, 3)).astype(np.float32)
  assert export.difference(model, run, images) < 1e-3
  if form == 'savedmodel':
    return
  # As many warnings as a large model has shapes would hide the figures.
  assert not [r for r in caplog.records if r.name.startswith('onnx')]
  # Whoever may read one, a server say, may read the other.
  assert len({path.stat().st_mode
              for path in (tmp_path / 'moved').iterdir()}) == 1
  sizes = {path.name: path.stat().st_size
           for path in (tmp_path / 'moved').iterdir()}
  weights = {'jax': 'weights.npz', 'onnx': 'model.onnx.data'}[form]
  assert set(sizes) == {export.PROGRAMS[form], weights}
  assert sizes[export.PROGRAMS[form]] < size / 4
  monkeypatch.setattr(export, 'MAX_BYTES', size)
  export.write(model, tmp_path / 'file', form=form)
  assert (tmp_path / 'file').stat().st_size >= size


def test_a_folder_of_jax_needs_none_of_our_code(tmp_path, monkeypatch):
  monkeypatch.setattr(export, 'MAX_BYTES', 0)
  model = make({**VIT, 'depth': 1})
  export.write(model, tmp_path / 'model', form='jax')
  exported = jax_export.deserialize(
      bytearray((tmp_path / 'model/model.stablehlo').read_bytes()))
  weights = dict(np.load(tmp_path / 'model/weights.npz'))
  images = np.zeros((3, 32, 32, 3), np.float32)
  np.testing.assert_allclose(
      exported.call(weights, images)['logits'], model(images)['logits'],
      atol=1e-5)


def test_a_file_of_jax_is_for_every_platform_and_needs_none_of_our_code(
    tmp_path):
  model = make(VIT)
  export.write(model, tmp_path / 'model', form='jax')
  exported = jax_export.deserialize(
      bytearray((tmp_path / 'model').read_bytes()))
  assert exported.platforms == ('cpu', 'cuda', 'tpu')
  assert str(exported.in_avals[0].shape) == '(batch, 32, 32, 3)'


def test_another_model_differs():
  model, other = make(VIT), make({**VIT, 'pooling': 'average'})
  images = np.zeros((1, 32, 32, 3), np.float32)
  assert export.difference(model, lambda x: jax.device_get(other(x)),
                              images) > 1e-3


def test_the_command_proves_what_it_wrote(tmp_path, capsys):
  model = make(VIT)
  model.save(tmp_path / 'orbax')
  Image.new('RGB', (40, 40), 'red').save(tmp_path / 'red.png')
  (tmp_path / 'broken.png').write_bytes(b'no picture')
  arguments = ['export', f'--model={tmp_path}/orbax', '--format=jax',
               f'--output={tmp_path}/model.stablehlo',
               f'{tmp_path}/broken.png', f'{tmp_path}/red.png']
  # What cannot be read is named, and the rest goes on.
  assert main.main([*arguments, f'--json={tmp_path}/figures.json']) == 1
  printed = capsys.readouterr().out
  assert f'could not read {tmp_path}/broken.png' in printed
  assert '5 random images: largest difference of a logit' in printed
  assert '1 picture: largest difference of a logit' in printed
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert max(figures['differences'].values()) < 1e-3
  assert 'random images only' not in printed
  assert main.main(arguments) == 2
  assert 'there is something already' in capsys.readouterr().err


@pytest.mark.parametrize(('form', 'name', 'words'), [
    ('jax', 'model.onnx', 'must end with .stablehlo'),
    ('onnx', 'model', 'must end with .onnx'),
    ('savedmodel', 'model.onnx', 'use --format=onnx')])
def test_a_file_is_called_as_its_format(tmp_path, capsys, form, name, words):
  # Known before the model is looked for.
  assert main.main(['export', '--model=nothing', f'--format={form}',
                    f'--output={tmp_path}/{name}']) == 2
  assert words in capsys.readouterr().err


def test_what_is_not_installed_is_said_before_the_model_is_looked_for(
    tmp_path, capsys, monkeypatch):
  monkeypatch.setitem(export.LIBRARIES, 'onnx', ('json', 'absent_library'))
  assert main.main(['export', '--model=nothing', '--format=onnx',
                    f'--output={tmp_path}/model.onnx']) == 2
  assert '--format=onnx needs absent_library, which is not installed: pip' in (
      capsys.readouterr().err)


def test_pictures_none_of_which_can_be_read_are_said_before_the_work(
    tmp_path, capsys, monkeypatch):
  make(VIT).save(tmp_path / 'orbax')
  (tmp_path / 'broken.png').write_bytes(b'no picture')
  monkeypatch.setattr(export, 'write', None)  # Not reached.
  assert main.main([
      'export', f'--model={tmp_path}/orbax', '--format=jax',
      f'--output={tmp_path}/model.stablehlo', f'{tmp_path}/broken.png']) == 2
  assert f'could be read: {tmp_path}/broken.png: ' in capsys.readouterr().err


def test_a_file_that_differs_is_not_left_behind(tmp_path, capsys, monkeypatch):
  make(VIT).save(tmp_path / 'orbax')
  monkeypatch.setattr(export, 'difference', lambda *_: float('nan'))
  assert main.main([
      'export', f'--model={tmp_path}/orbax', '--format=jax',
      f'--output={tmp_path}/model.stablehlo']) == 2
  printed = capsys.readouterr()
  assert 'a logit differs by nan' in printed.err
  assert 'compared on random images only' in printed.out
  assert [path.name for path in tmp_path.iterdir()] == ['orbax']
