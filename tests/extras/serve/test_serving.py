"""The code in docs/serving reproduces the predictions of the model."""

import asyncio
import contextlib
import importlib
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys
import time
import types
import typing
from urllib import error
from urllib import request

import jax
import numpy as np
from PIL import Image
import pytest

from tests import hostile
from tests import pictures
from tests import random_models
from tests import toy
from tests.extras.serve import crafted_images
from vit_jax import __main__ as main
from vit_jax import registry
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.data.images import resize as resize_lib
from vit_jax.extras.serve import export_files
from vit_jax.inference import images as images_lib

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / 'docs' / 'serving'
START_SECS = 120
MODEL = {'width': 8, 'depth': 2, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
         'num_classes': 5}


def resized_and_cropped(**resize):
  return [{'op': 'resize', 'rounding': 'torchvision', **resize},
          {'op': 'central_crop', 'rounding': 'torchvision'}]


@pytest.fixture(scope='module')
def model():
  made = random_models.make(
      MODEL, side=32, mean=preprocessing_lib.IMAGENET_MEAN,
      std=preprocessing_lib.IMAGENET_STD, labels=tuple('abcde'),
      ops=resized_and_cropped(shorter=36, method='bicubic'))
  # Keeps the probabilities away from 0 and 1.
  made.params['head'] = jax.tree.map(lambda x: 0.3 * x, made.params['head'])
  return made


def picture(seed, *, size=(61, 47), mode='RGB'):
  """A smooth image, which JPEG hardly changes."""
  rng = np.random.default_rng(seed)
  small = rng.integers(0, 256, (6, 5, 4), np.uint8)
  return Image.fromarray(small, 'RGBA').resize(
      size, Image.Resampling.BICUBIC).convert(mode)


@contextlib.contextmanager
def serving(folder, model):
  """Runs the server; yields its address once it is ready."""
  port = toy.free_port()
  with (folder / 'log').open('w') as log, subprocess.Popen(
      [sys.executable, '-m', 'uvicorn', 'server:app', '--port', str(port)],
      cwd=folder, stdout=log, stderr=log,
      env={**os.environ, 'MODEL': model}) as server:
    try:
      end = time.monotonic() + START_SECS
      while 'Uvicorn running' not in (folder / 'log').read_text():
        assert server.poll() is None and time.monotonic() < end, (
            folder / 'log').read_text()
        time.sleep(0.1)
      yield f'http://127.0.0.1:{port}'
    finally:
      server.terminate()


def post(address, data):
  with request.urlopen(request.Request(address, data)) as response:
    return json.load(response)


@pytest.mark.slow  # Starts a process.
def test_the_server_returns_the_predictions_of_the_model(tmp_path, model):
  pytest.importorskip('starlette')
  pytest.importorskip('uvicorn')
  model.save(tmp_path / 'mine')
  argv = ['export', f'--model={tmp_path}/mine', '--format=jax', '--server',
          f'--output={tmp_path}/model.stablehlo']
  assert main.main(argv) == 0
  assert not (tmp_path / 'image_file.py').is_symlink()
  responses = []
  with serving(tmp_path, 'model.stablehlo') as address:
    with request.urlopen(f'{address}/health') as response:
      assert response.status == 200
    for seed in (0, 1):
      data = pictures.encode(picture(seed), 'JPEG')
      responses.append(post(f'{address}/predict?top_k=3', data))
      expected = model.predict(Image.open(io.BytesIO(data)), top_k=3)
      assert [a['class'] for a in responses[-1]] == list(expected.classes)
      assert [a['name'] for a in responses[-1]] == list(expected.names)
      np.testing.assert_allclose(
          [a['probability'] for a in responses[-1]], expected.probabilities,
          atol=1e-3)
    bomb, _ = CRAFTED['gif of many comment blocks']
    for path, body in (('predict', b'no picture'), ('predict', bomb),
                       ('predict?top_k=x', data)):
      with pytest.raises(error.HTTPError) as caught:
        post(f'{address}/{path}', body)
      assert caught.value.code == 400
      assert b'object at' not in caught.value.read()
    assert post(f'{address}/predict?top_k=3', data) == responses[-1]
  assert responses[0] != responses[1]


@pytest.fixture(scope='module')
def modules():
  """The modules of the server that do not need a model, by name."""
  names = ('image_file', 'preprocess', 'worker')
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(FOLDER)  # Its processes import them, too.
    yield {name: importlib.import_module(name) for name in names}
  for name in names:
    del sys.modules[name]


@pytest.fixture(scope='module')
def preprocess(modules):
  return modules['preprocess']


EXIF = Image.Exif()
EXIF[0x0112], EXIF[0x0213] = 6, 1  # Rotated by 90 degrees.


PICTURES = {
    'jpeg': pictures.encode(picture(0), 'JPEG'),
    'rotated jpeg': pictures.encode(picture(3), 'JPEG', exif=EXIF),
    # A number tagged as text, which Pillow cannot write.
    'jpeg with broken exif': pictures.encode(
        picture(3), 'JPEG', exif=EXIF.tobytes().replace(
            b'\2\x13\0\3', b'\2\x13\0\2')),
    'cmyk jpeg': pictures.encode(picture(0, mode='CMYK'), 'JPEG'),
    'grey png': pictures.encode(picture(0, mode='L'), 'PNG'),
    'transparent png': pictures.encode(picture(0, mode='RGBA'), 'PNG'),
    'palette png': pictures.encode(
        picture(0).quantize(8), 'PNG', transparency=3),
    '16-bit png': pictures.encode(Image.fromarray(
        np.linspace(0, 65535, 40 * 30).reshape(40, 30).astype(np.uint16)),
                           'PNG'),
    '4-bit png': hostile.png(
        2, 1, bits=4, colour=0, data=b'\0\x2f',
        chunks=[(b'tRNS', b'\0\2')]),
    'same size': pictures.encode(picture(0, size=(32, 32)), 'PNG'),
}
SETTINGS = (
    {},
    {'mean': preprocessing_lib.IMAGENET_MEAN,
     'std': preprocessing_lib.IMAGENET_STD},
    {'ops': resized_and_cropped(shorter=35, method='lanczos')},
    {'ops': resized_and_cropped(cover=(24, 32)), 'resolution': (24, 32)},
    {'value_range': (16.0, 235.0), 'ops': [
        {'op': 'resize', 'method': 'bicubic'}]},
    {'ops': [{'op': 'resize', 'size': 36}, {'op': 'central_crop', 'size': 32}]},
    {'ops': [{'op': 'resize', 'cover': 36}, {'op': 'central_crop'}]},
)


@pytest.mark.parametrize('settings', SETTINGS, ids=str)
@pytest.mark.parametrize('name', PICTURES)
def test_preprocessing_agrees_with_the_model(preprocess, name, settings):
  record = preprocessing_lib.parse({'resolution': 32, **settings})
  plain = json.loads(json.dumps(preprocessing_lib.to_plain(record)))
  got = preprocess.to_array(PICTURES[name], plain)
  wanted = images_lib.read(Image.open(io.BytesIO(PICTURES[name])), record)
  assert got.dtype == np.float32
  np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize('settings,message', [
    *((settings, '') for settings in SETTINGS),
    *(({'ops': [{'op': 'resize', 'method': method}]}, '')
      for method in typing.get_args(resize_lib.Method) if method != 'area'),
    *(({'ops': [{'op': name}]},
       f'crops the centre, but .*{name}.*without --se')
      for name in registry.OPERATIONS
       if name not in ('resize', 'central_crop')),
    ({'ops': [{'op': 'resize', 'method': 'area'}]}, 'needs .*area'),
    ({'ops': [{'op': 'resize', 'antialias': False}]}, 'needs .*antialias'),
    ({'channels': 4, 'mean': 0.5, 'std': 0.5}, 'takes 4 channels of uint8'),
    ({'pixel_dtype': 'uint16', 'value_range': (0, 65535)},
     '8-bit RGB .* takes 3 channels of uint16'),
    ({'activation': 'none'}, 'predicts numbers')], ids=str)
def test_the_server_is_exported_for_the_models_that_it_can_serve(
    preprocess, tmp_path, settings, message):
  record = preprocessing_lib.parse({'resolution': 32, **settings})
  path = tmp_path / 'model.json'
  path.write_text(json.dumps(preprocessing_lib.to_plain(record)))
  if not message:
    export_files.check_server(record)
    assert preprocess.read_settings(path) == json.loads(path.read_text())
    return
  with pytest.raises(ValueError, match=message):
    export_files.check_server(record)
  with pytest.raises(ValueError):
    preprocess.read_settings(path)


JPEG = PICTURES['jpeg']
CRAFTED = crafted_images.crafted()


@pytest.fixture
def server(tmp_path, modules, monkeypatch):
  """The server as a module, without a model."""
  pytest.importorskip('starlette')
  runtime = types.SimpleNamespace(
      get_available_providers=list,
      InferenceSession=lambda *_, **__: types.SimpleNamespace(
          run=lambda _, feed: [np.zeros((len(feed['images']), 3))]))
  monkeypatch.setitem(sys.modules, 'onnxruntime', runtime)
  settings = preprocessing_lib.to_plain(
      preprocessing_lib.Preprocess(resolution=(8, 8)))
  (tmp_path / 'model.onnx.json').write_text(json.dumps(settings))
  monkeypatch.setenv('MODEL', str(tmp_path / 'model.onnx'))
  return types.SimpleNamespace(**runpy.run_path(str(FOLDER / 'server.py')))


async def send_all(server, bodies):
  """Sends images at the same time; returns the statuses."""
  async with server.ready(server.app):
    return await asyncio.gather(*(
        send(server.app, [body, b'']) for body in bodies))


async def send(app, chunks):
  """Sends a body; returns the status. After the chunks, nothing arrives."""
  bodies, sent = iter(chunks), []

  async def receive():
    for body in bodies:
      return {'type': 'http.request', 'body': body, 'more_body': bool(body)}
    await asyncio.sleep(60)

  async def respond(message):
    sent.append(message)

  await app({'type': 'http', 'method': 'POST', 'path': '/predict',
             'query_string': b'', 'headers': []}, receive, respond)
  return sent[0]['status']


def test_many_images_are_answered_at_the_same_time(server):
  statuses = asyncio.run(send_all(server, [JPEG, b'junk'] * 25))
  assert statuses == [200, 400] * 25


@pytest.fixture(scope='module')
def decoder(modules):
  settings = preprocessing_lib.to_plain(
      preprocessing_lib.Preprocess(resolution=(8, 8)))
  made = modules['worker'].Worker(json.loads(json.dumps(settings)))
  made.to_array(JPEG)  # Waits until it is ready.
  yield made
  made.close()


@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[pytest.mark.slow] * name.startswith('gif'))
    for name in CRAFTED])
def test_crafted_images_cost_at_most_five_seconds(decoder, name):
  data, is_image = CRAFTED[name]
  start = time.monotonic()
  with contextlib.nullcontext() if is_image else pytest.raises(ValueError):
    assert decoder.to_array(data).shape == (8, 8, 3)
  assert time.monotonic() - start < 5
  assert decoder.to_array(JPEG).shape == (8, 8, 3)


def test_a_process_that_ends_is_replaced(decoder):
  decoder._process.kill()
  with pytest.raises(ValueError, match='too much time or memory'):
    decoder.to_array(JPEG)
  assert decoder.to_array(JPEG).shape == (8, 8, 3)


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_an_output_that_is_not_finite_is_an_error(
    server, preprocess, monkeypatch, value):
  logits = np.array([1, value, 2], np.float32)
  settings = {'activation': 'sigmoid', 'labels': []}
  with pytest.raises(ValueError, match='not finite'):
    preprocess.top_classes(logits, settings)
  monkeypatch.setitem(server.predict.__globals__, 'run', lambda _: [logits])
  assert asyncio.run(send_all(server, [JPEG])) == [500]


def test_slow_and_large_bodies_are_refused(server):
  globals_ = server.answer.__globals__
  globals_ |= {'BODY_SECS': 0.05, 'MAX_BYTES': 10}
  assert asyncio.run(send(server.app, [b'slow'])) == 408
  assert asyncio.run(send(server.app, [b'1234', b'5678901', b''])) == 413


def test_a_server_never_replaces_a_file(tmp_path, capsys):
  (tmp_path / 'server.py').write_text('mine')
  assert main.main([
      'export', '--model=x', '--format=jax', '--server',
      f'--output={tmp_path}/model.stablehlo']) != 0
  assert 'server.py exists already' in capsys.readouterr().err
  assert (tmp_path / 'server.py').read_text() == 'mine'
