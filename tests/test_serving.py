"""What docs/serving.md says to type serves what the model predicts."""

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import re
import runpy
import socket
import subprocess
import sys
import time
from urllib import error
from urllib import request

import jax
import numpy as np
from PIL import Image
import pytest

from tests import random_models
from vit_jax.inference import export
from vit_jax.inference import images as images_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / 'docs' / 'serving.md').read_text()
# The files of the document, by the name in their first line.
FILES = dict(re.findall(
    r'```\w*\n# (\S+)\n(.*?)```', TEXT, flags=re.DOTALL))
START_SECS = 120
MODEL = {'width': 8, 'depth': 2, 'mlp_dim': 8, 'num_heads': 2, 'patch': 4,
         'num_classes': 5}


@pytest.fixture(scope='module')
def model():
  made = random_models.make(
      MODEL, side=32, mean=preprocessing_lib.IMAGENET_MEAN,
      std=preprocessing_lib.IMAGENET_STD, keep_aspect=True, crop=0.875,
      interpolation='bicubic', labels=tuple('abcde'))
  # Less sure of itself: probabilities between 0 and 1.
  made.params['head'] = jax.tree.map(lambda x: 0.3 * x, made.params['head'])
  return made


@pytest.fixture
def folder(tmp_path, model):
  """A folder with the document's files, and what they need."""
  for name, code in FILES.items():
    (tmp_path / name).write_text(code)
  model.save(tmp_path / 'mine')
  export.write(model, tmp_path / 'model.stablehlo', form='jax')
  return tmp_path


def picture(seed, *, size=(61, 47), mode='RGB'):
  """Smooth, so that a JPEG of it is like it."""
  rng = np.random.default_rng(seed)
  small = rng.integers(0, 256, (6, 5, 4), np.uint8)
  return Image.fromarray(small, 'RGBA').resize(
      size, Image.Resampling.BICUBIC).convert(mode)


def to_bytes(image, form, **settings):
  file = io.BytesIO()
  image.save(file, form, **settings)
  return file.getvalue()


@contextlib.contextmanager
def serving(folder, **variables):
  """Starts the server as the document does; gives its address."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  address = f'http://127.0.0.1:{port}'
  with (folder / 'log').open('w') as log, subprocess.Popen(
      [sys.executable, '-m', 'uvicorn', 'server:app', '--port', str(port)],
      cwd=folder, stdout=log, stderr=log,
      env={**os.environ, **variables}) as server:
    try:
      end = time.monotonic() + START_SECS
      while not is_ready(address):
        assert server.poll() is None and time.monotonic() < end, (
            folder / 'log').read_text()
        time.sleep(0.1)
      yield address
    finally:
      server.terminate()


def is_ready(address):
  try:
    with request.urlopen(f'{address}/health') as answer:
      return answer.status == 200
  except OSError:
    return False


def post(address, data):
  with request.urlopen(request.Request(address, data)) as answer:
    return json.load(answer)


def test_a_served_picture_gets_what_the_model_predicts(
    folder, model, monkeypatch):
  pytest.importorskip('starlette')
  pytest.importorskip('uvicorn')
  monkeypatch.setattr(
      sys, 'argv', ['beside.py', f'{folder}/mine', f'{folder}/settings.json'])
  runpy.run_path(str(folder / 'beside.py'))
  answers = []
  with serving(folder, MODEL='model.stablehlo',
               PREPROCESS='settings.json') as address:
    for seed in (0, 1):
      data = to_bytes(picture(seed), 'JPEG')
      answers.append(post(f'{address}/predict?top_k=3', data))
      expected = model.predict(Image.open(io.BytesIO(data)), top_k=3)
      assert [a['class'] for a in answers[-1]] == list(expected.classes)
      assert [a['name'] for a in answers[-1]] == list(expected.names)
      np.testing.assert_allclose(
          [a['probability'] for a in answers[-1]], expected.probabilities,
          atol=1e-3)
    for path, body in (('predict', b'no picture'), ('predict?top_k=x', data)):
      with pytest.raises(error.HTTPError) as caught:
        post(f'{address}/{path}', body)
      assert caught.value.code == 400
  assert answers[0] != answers[1]


@pytest.fixture(scope='module')
def preprocess(tmp_path_factory):
  """The document's preprocess.py, as a module."""
  path = tmp_path_factory.mktemp('served') / 'preprocess.py'
  path.write_text(FILES['preprocess.py'])
  spec = importlib.util.spec_from_file_location('served_preprocess', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def upside_down():
  exif = Image.Exif()
  exif[0x0112] = 6  # To be turned by a quarter.
  return to_bytes(picture(3), 'JPEG', exif=exif)


def broken_exif():
  exif = Image.Exif()
  exif[0x0112], exif[0x0213] = 6, 1
  # A number that is said to be a text: Pillow fails to write it again.
  return to_bytes(picture(3), 'JPEG', exif=exif.tobytes().replace(
      b'\2\x13\0\3', b'\2\x13\0\2'))


PICTURES = {
    'jpeg': to_bytes(picture(0), 'JPEG'),
    'turned jpeg': upside_down(),
    'jpeg of broken exif': broken_exif(),
    'cmyk jpeg': to_bytes(picture(0, mode='CMYK'), 'JPEG'),
    'grey png': to_bytes(picture(0, mode='L'), 'PNG'),
    'transparent png': to_bytes(picture(0, mode='RGBA'), 'PNG'),
    'png of a palette': to_bytes(
        picture(0).quantize(8), 'PNG', transparency=3),
    '16-bit png': to_bytes(Image.fromarray(
        np.linspace(0, 65535, 40 * 30).reshape(40, 30).astype(np.uint16)),
                           'PNG'),
    'of the size': to_bytes(picture(0, size=(32, 32)), 'PNG'),
}
SETTINGS = (
    {},
    {'resolution': (24, 32), 'interpolation': 'bicubic'},
    {'crop': 0.875, 'mean': preprocessing_lib.IMAGENET_MEAN,
     'std': preprocessing_lib.IMAGENET_STD},
    {'keep_aspect': True, 'crop': 0.9, 'interpolation': 'lanczos'},
    {'keep_aspect': True, 'resolution': (24, 32)},
    {'value_range': (16.0, 235.0), 'mean': preprocessing_lib.IMAGENET_MEAN},
)


@pytest.mark.parametrize('settings', SETTINGS, ids=str)
@pytest.mark.parametrize('name', PICTURES)
def test_the_preprocessing_beside_a_file_is_the_models(
    preprocess, name, settings):
  record = preprocessing_lib.Preprocess(**{'resolution': (32, 32), **settings})
  plain = json.loads(json.dumps(dataclasses.asdict(record)))
  got = preprocess.to_array(PICTURES[name], plain)
  wanted = images_lib.read(Image.open(io.BytesIO(PICTURES[name])), record)
  assert got.dtype == np.float32
  np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_a_strip_of_pixels_is_refused_as_the_model_does(preprocess):
  record = preprocessing_lib.Preprocess(resolution=(224, 224), keep_aspect=True)
  strip = Image.new('RGB', (1, 60_000))
  with pytest.raises(ValueError, match='too long a strip'):
    preprocess.to_array(to_bytes(strip, 'PNG'), dataclasses.asdict(record))
  with pytest.raises(ValueError, match='would be resized'):
    images_lib.read(strip, record)


@pytest.mark.parametrize('activation', ['softmax', 'sigmoid'])
def test_the_answers_beside_a_file_are_the_models(
    preprocess, model, activation):
  settings = dataclasses.replace(model.preprocess, activation=activation)
  logits = np.asarray([0.5, -1.0, 2.0, 3.0, -2.0], np.float32)
  got = preprocess.likeliest(logits, dataclasses.asdict(settings), 5)
  expected, = dataclasses.replace(model, preprocess=settings).top_classes(
      logits[None], top_k=5)
  assert sorted(a['name'] for a in got) == sorted(expected.names)
  of = dict(zip(expected.classes, expected.probabilities))
  np.testing.assert_allclose(
      [a['probability'] for a in got], [of[a['class']] for a in got], atol=1e-6)


def test_a_model_of_other_pictures_or_answers_is_refused(preprocess, tmp_path):
  for words, other in (
      ('1 channels', {'channels': 1, 'mean': (0.5,), 'std': (0.5,)}),
      ('predicts numbers', {'activation': 'none'})):
    record = preprocessing_lib.Preprocess(resolution=(8, 8), **other)
    (tmp_path / 'other.json').write_text(
        json.dumps(dataclasses.asdict(record)))
    with pytest.raises(ValueError, match=words):
      preprocess.read_settings(tmp_path / 'other.json')


def test_every_file_of_the_document_is_python_or_what_it_says():
  assert {'beside.py', 'preprocess.py', 'server.py', 'triton.py',
          'tensorflow_serving.py', 'config.pbtxt'} <= set(FILES)
  for name, code in FILES.items():
    if name.endswith('.py'):
      compile(code, name, 'exec')


def test_a_file_of_onnx_holds_large_weights_too(tmp_path):
  for library in ('jax2onnx', 'onnxruntime'):
    pytest.importorskip(library)
  large = random_models.make(
      {**MODEL, 'width': 128, 'mlp_dim': 2560, 'depth': 1}, side=8)
  export.write(large, tmp_path / 'first.onnx', form='onnx')
  assert [path.name for path in tmp_path.iterdir()] == ['first.onnx']
  moved = (tmp_path / 'first.onnx').rename(tmp_path / 'moved.onnx')
  images = np.random.default_rng(0).uniform(
      -1, 1, (2, 8, 8, 3)).astype(np.float32)
  assert export.difference(
      large, export.read(moved, form='onnx'), images) < 1e-3
