"""Exported models give the same logits after reading them back."""

import json
import math

import jax
from jax import export as jax_export
import numpy as np
import pytest

from tests import pictures
from tests import random_models
from vit_jax import __main__ as main
from vit_jax.extras.serve import export
from vit_jax.extras.serve import quantize
from vit_jax.extras.serve import settings as settings_lib
from vit_jax.inference import image_files

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
    'grouped': {**VIT, 'num_kv_heads': 1, 'rotary': {}},
    'rotary registers': {
        **VIT, 'rotary': {'register_base': 100.0}, 'registers': 4,
        'pooling': 'cls_registers'},
    'differential, paired': {**VIT, 'differential': True, 'paired': True},
    'no head': {**VIT, 'num_classes': 0},
    'decoder': {**VIT, 'decoder': {'widths': [8], 'cells': 2}},
    'backbone': {
        **VIT, 'mlp': 'swiglu', 'inner_norm': 'both', 'stem_norm': 'tokens',
        'key_bias': False, 'rotary': {'learned': True}, 'registers': 2},
    'relative': {**VIT, 'position': 'relative_2d', 'post_norm': True},
    'relative, shared': {
        **VIT, 'position': 'relative_mlp', 'position_at': 'shared'},
}


def make(settings):
  return random_models.make(settings, side=32)


def random_images(count):
  return np.random.default_rng(count).uniform(
      -1, 1, (count, 32, 32, 3)).astype(np.float32)


def need(form):
  for library in export.LIBRARIES[form]:
    pytest.importorskip(library)


def run(model, output, *flags):
  """Runs the command; returns its status."""
  return main.main([
      'export', f'--model={model}', f'--output={output}', *map(str, flags)])


def test_a_jax_file_computes_in_float32_on_any_platform_with_any_batch_size(
    tmp_path):
  model = make(MODELS['bfloat16'])
  export.write(model, tmp_path / 'model', form='jax')
  exported = jax_export.deserialize(
      bytearray((tmp_path / 'model').read_bytes()))
  assert exported.platforms == ('cpu', 'cuda', 'tpu')
  assert str(exported.in_avals[0].shape) == '(batch, 32, 32, 3)'
  program = exported.mlir_module()
  assert 'f32' in program and 'bf16' not in program
  plain = export.in_float32(model)
  assert export.in_float32(plain) is plain and plain.config.remat == 'none'
  assert plain.params is model.params


@pytest.mark.parametrize(('name', 'form'), [
    ('decoder', 'jax'),
    *(pytest.param(name, 'jax', marks=pytest.mark.slow) for name in (
        'resnet', 'no head', 'grouped', 'rotary registers',
        'differential, paired', 'relative', 'relative, shared')),
    *((name, 'onnx') for name in MODELS)])
def test_exports_give_the_same_logits_for_any_batch_size(tmp_path, name, form):
  need(form)
  model = make(MODELS[name])
  export.write(model, tmp_path / 'model', form=form)
  exported = export.read(tmp_path / 'model', form=form)
  for images in map(random_images, (1, 3)):
    assert export.difference(model, exported, images) < 1e-3
    np.testing.assert_allclose(
        exported(images)['representation'],
        export.in_float32(model)(images)['representation'],
        atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize('form', ['jax', 'onnx'])
def test_large_models_become_a_folder_with_separate_weights(
    tmp_path, monkeypatch, caplog, form):
  need(form)
  # jax2onnx writes arrays above 1 MiB to a separate file.
  model = make({**VIT, 'depth': 1, 'mlp_dim': 2**15})
  size = 4 * sum(leaf.size for leaf in jax.tree.leaves(model.params))
  monkeypatch.setattr(export, 'MAX_BYTES', size - 1)
  export.write(model, tmp_path / 'model', form=form)
  moved = (tmp_path / 'model').rename(tmp_path / 'moved')
  assert export.difference(
      model, export.read(moved, form=form), random_images(2)) < 1e-3
  assert not [r for r in caplog.records if r.name.startswith('onnx')]
  files = {path.name: path.stat() for path in moved.iterdir()}
  weights = {'jax': 'weights.npz', 'onnx': 'model.onnx.data'}[form]
  assert set(files) == {export.PROGRAMS[form], weights}
  assert len({stat.st_mode for stat in files.values()}) == 1
  assert files[export.PROGRAMS[form]].st_size < size / 4
  if form == 'jax':  # It runs without vit_jax.
    exported = jax_export.deserialize(
        bytearray((moved / 'model.stablehlo').read_bytes()))
    found = exported.call(dict(np.load(moved / weights)), random_images(3))
    np.testing.assert_allclose(
        found['logits'], model(random_images(3))['logits'], atol=1e-5)
  monkeypatch.setattr(export, 'MAX_BYTES', size)
  export.write(model, tmp_path / 'file', form=form)
  assert (tmp_path / 'file').stat().st_size >= size


def test_the_command_compares_the_export_with_the_model(tmp_path, capsys):
  make(VIT).save(tmp_path / 'orbax')
  pictures.save_all(tmp_path, ['red.png'], side=40)
  (tmp_path / 'broken.png').write_bytes(b'no picture')
  (tmp_path / 't.csv').write_text('photo\nred.png\n')
  arguments = (
      tmp_path / 'orbax', tmp_path / 'model.stablehlo', '--format=jax',
      tmp_path / 'broken.png', tmp_path / 't.csv',
      '--config.data.table.path=photo', f'--json={tmp_path}/figures.json')
  assert run(*arguments) == 1
  printed = capsys.readouterr().out
  for words in (
      f'no result for {tmp_path}/broken.png',
      '5 random images: largest difference of a logit',
      '1 image: largest difference of a logit',
      f'jax {jax.__version__} and releases of the 6 months after it'):
    assert words in printed
  assert 'random images only' not in printed
  settings = json.loads((tmp_path / 'model.stablehlo.json').read_text())
  assert settings['jax'] == jax.__version__
  figures = json.loads((tmp_path / 'figures.json').read_text())
  assert max(figures['differences'].values()) < 1e-3
  assert run(*arguments) == 2
  assert 'exists already. Remove it' in capsys.readouterr().err


@pytest.mark.parametrize(('name', 'flags', 'words'), [
    ('model.onnx', ['--format=jax'], 'must end with .stablehlo'),
    ('model', ['--format=onnx'], 'must end with .onnx'),
    ('model.onnx', ['--format=onnx'],
     '--format=onnx needs absent_library, which is not installed. In an '
     "environment of its own (docs/serving.md): pip install '.[export]'"),
    ('model.stablehlo', ['--format=jax', '--quantize=int8', '--calibrate=x'],
     'needs --format=onnx'),
    ('model.onnx', ['--format=onnx', '--quantize=int8'], '--calibrate=FOLDER'),
    ('model.onnx', ['--format=onnx', '--calibrate=x'], 'need --quantize=int8'),
    ('model.onnx', ['--format=onnx', '--accept-loss'],
     '--accept-loss need --quantize')])
def test_mistakes_are_reported_before_loading(
    tmp_path, capsys, monkeypatch, name, flags, words):
  if 'absent_library' in words:
    monkeypatch.setitem(export.LIBRARIES, 'onnx', ('json', 'absent_library'))
  assert run('nothing', tmp_path / name, *flags) == 2
  assert words in ' '.join(capsys.readouterr().err.split())


def test_an_export_that_differs_is_removed(tmp_path, capsys, monkeypatch):
  make(VIT).save(tmp_path / 'orbax')
  monkeypatch.setattr(export, 'difference', lambda *_: float('nan'))
  assert run(tmp_path / 'orbax', tmp_path / 'model.stablehlo',
             '--format=jax') == 2
  printed = capsys.readouterr()
  assert 'differs by nan in a logit' in printed.err
  assert 'compared on random images only' in printed.out
  assert [path.name for path in tmp_path.iterdir()] == ['orbax']


@pytest.mark.parametrize(('cells', 'names', 'expected'), [
    (['0.0'], ('0', '1'), 0), ([1.0], ('0', '1'), 1), ([' b '], ('a', 'b'), 1),
    (['a|b'], ('a', 'b'), -1), (['a', 'b'], ('a', 'b'), -1),
    ([''], ('None', 'b'), -1), ([], ('a', 'b'), 0),
    (['b', 'b'], ('a', 'b'), 1)])
def test_labels_are_read_as_in_training(cells, names, expected):
  assert quantize.class_of(
      'a/x.png', [{'label': cell} for cell in cells], names) == expected


def test_an_int8_export_is_compared_with_float32(tmp_path, capsys, monkeypatch):
  need('onnx')
  names = ('cat', 'dog', 'owl')
  model = random_models.make(
      {**VIT, 'width': 32, 'mlp_dim': 128}, side=32, labels=names)
  model.save(tmp_path / 'orbax')
  folder = pictures.save_all(tmp_path / 'images', [
      f'{names[i % 3]}/{i}.png' for i in range(40)], side=32)

  def export_int8(output, *flags):
    assert run(
        tmp_path / 'orbax', tmp_path / output, '--format=onnx',
        '--quantize=int8', f'--json={tmp_path}/{output}.figures', folder,
        *flags, '--accept-loss', '--calibrate', folder) == 0
    return json.loads((tmp_path / f'{output}.figures').read_text())

  # A warning for any model, since none gains a point.
  monkeypatch.setattr(settings_lib, 'MAX_LOSS', -2.0)
  figures = export_int8('model.onnx')
  printed = capsys.readouterr().out
  images = random_images(64)
  difference = export.difference(
      model, export.read(tmp_path / 'model.onnx', form='onnx'), images)
  assert 1e-6 < difference < 0.2 * np.ptp(np.asarray(model(images)['logits']))
  assert figures['int8']['mebibytes'] < 0.8 * figures['float32']['mebibytes']
  paths = sorted(map(str, folder.rglob('*.png')))
  _, found = export.read_images(
      model, paths, image_files.ReadProgress(len(paths)))
  labels = np.repeat(range(3), [14, 13, 13])
  assert figures['float32']['accuracy'] == pytest.approx(
      (np.asarray(model(found)['logits']).argmax(-1) == labels).mean())
  assert 0.8 < figures['agreement'] <= 1
  assert figures['examples'] == 40 and '40 images' in printed
  nodes = printed.split('--float-nodes ')[1].split('\n')[0].split()
  assert len(nodes) == 3
  export_int8('some.onnx', '--float-nodes', *nodes)
  assert (tmp_path / 'model.onnx').stat().st_size < (
      tmp_path / 'some.onnx').stat().st_size
  assert not list(tmp_path.glob('*.float32'))


@pytest.mark.parametrize(('lost', 'agreement', 'numbers', 'words'), [
    (0.009, 0.95, False, ''), (math.nan, 0.96, False, ''),
    (math.nan, 0.151, False, 'class of float32 for 15.1 % of the images'),
    (0.3, 0.99, False, 'loses 30.0 points of accuracy, more than 1'),
    (0.3, 0.5, False, 'less than 95 %, and loses 30.0 points'),
    (math.nan, 0.6, True, 'keeps 60.0 % of the variance'),
    (math.nan, math.nan, True, 'of the variance')])
def test_an_int8_export_that_loses_much_is_a_warning(
    lost, agreement, numbers, words):
  found = quantize.loss(lost, agreement, numbers=numbers)
  assert words in found and bool(found) == bool(words)


@pytest.mark.parametrize(('factor', 'expected'), [
    (1.0, 1.0), (0.9, 0.99), (0.0, 0.0)])
def test_numbers_are_compared_by_their_variance(
    factor, expected, monkeypatch, tmp_path):
  for name in 'ab':
    (tmp_path / name).write_bytes(b'x')
  images = np.arange(40, dtype=np.float32).reshape(40, 1, 1, 1)

  def read(path, form):
    scale = factor if path.name == 'b' else 1
    return lambda x: {'logits': scale * (x[:, 0, 0] - 19.5)}

  monkeypatch.setattr(export, 'read', read)
  _, agreement = quantize.compare(
      [tmp_path / 'a', tmp_path / 'b'], images, np.full(40, -1), numbers=True)
  assert agreement == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(('flags', 'status'), [([], 1), (['--accept-loss'], 0)])
def test_an_int8_export_that_collapses_is_written_with_status_1(
    tmp_path, capsys, monkeypatch, flags, status):
  model = make(VIT)
  model.save(tmp_path / 'orbax')
  folder = pictures.save_all(
      tmp_path / 'images', [f'x/{i}.png' for i in range(4)], side=32)
  for module, name, fake in (
      (export, 'check_installed', lambda form: None),
      (export, 'write', lambda model, path, form: path.write_bytes(b'float32')),
      (export, 'read', lambda path, form: model),
      (quantize, 'write', lambda source, target, *_, **__: (
          target.write_bytes(b'int8'))),
      (quantize, 'noisiest_nodes', lambda *_: ['node_7']),
      (quantize, 'compare', lambda *_, **__: (
          [quantize.Measured(1.0, 1.0, math.nan)] * 2, 0.151))):
    monkeypatch.setattr(module, name, fake)
  assert run(
      tmp_path / 'orbax', tmp_path / 'm.onnx', '--format=onnx',
      '--quantize=int8', *flags, '--calibrate', folder) == status
  printed = ' '.join(capsys.readouterr().out.split())
  assert ('warning: int8 predicts the class of float32 for 15.1 % of the '
          'images, less than 95 %. The file is written, and' in printed)
  assert '--accept-loss' in printed and '--float-nodes node_7' in printed
  assert (tmp_path / 'm.onnx').read_bytes() == b'int8'
