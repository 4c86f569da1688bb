"""Serves an exported model over HTTP.

    MODEL=model.stablehlo uvicorn server:app --limit-concurrency 100
"""

import asyncio
import contextlib
import os
import pathlib
import queue
import tempfile

import anyio
import numpy as np
import preprocess
from starlette import applications
from starlette import exceptions
from starlette import responses
from starlette import routing
import worker

MODEL = os.environ['MODEL']
SETTINGS = preprocess.read_settings(f'{MODEL}.json')
MAX_BYTES = 20 * 2**20  # Per image.
BODY_SECS = 30
NUM_WORKERS = 2  # Each needs up to `worker.MAX_BYTES`.
decoders = anyio.CapacityLimiter(NUM_WORKERS)
workers = queue.SimpleQueue()


def load(path):
  """Returns a function from images to logits."""
  folder = pathlib.Path(path) if os.path.isdir(path) else None
  if path.endswith('.onnx'):
    import onnxruntime
    program = str(folder / 'model.onnx') if folder else path
    session = onnxruntime.InferenceSession(program, providers=[
        name for name in ('CUDAExecutionProvider', 'CPUExecutionProvider')
        if name in onnxruntime.get_available_providers()])
    return lambda images: session.run(['logits'], {'images': images})[0]
  import jax
  from jax import export
  program = folder / 'model.stablehlo' if folder else pathlib.Path(path)
  exported = export.deserialize(bytearray(program.read_bytes()))
  weights = [jax.device_put(dict(np.load(folder / 'weights.npz')))
             ] if folder else []
  call = jax.jit(lambda *inputs: exported.call(*inputs)['logits'])
  return lambda images: np.asarray(call(*weights, images))


def predict(body, top_k):
  body.seek(0)
  decoder = workers.get()
  try:
    images = decoder.to_array(body.read())[None]
  except ValueError as error:
    raise exceptions.HTTPException(400, f'not an image: {error}') from error
  finally:
    workers.put(decoder)
  try:
    return preprocess.top_classes(run(images)[0], SETTINGS, top_k)
  except ValueError as error:
    raise exceptions.HTTPException(500, str(error)) from error


async def answer(request):
  try:
    top_k = max(1, int(request.query_params.get('top_k', 5)))
  except ValueError as error:
    raise exceptions.HTTPException(400, 'top_k must be an integer') from error
  with tempfile.SpooledTemporaryFile(2**18) as body:  # Larger: on disk.
    try:
      async with asyncio.timeout(BODY_SECS):
        async for chunk in request.stream():
          body.write(chunk)
          if body.tell() > MAX_BYTES:
            raise exceptions.HTTPException(413, f'more than {MAX_BYTES} bytes')
    except TimeoutError as error:
      raise exceptions.HTTPException(408, 'the body is too slow') from error
    return responses.JSONResponse(await anyio.to_thread.run_sync(
        predict, body, top_k, limiter=decoders))


async def health(request):
  return responses.PlainTextResponse('ready')


@contextlib.asynccontextmanager
async def ready(app):
  started = [worker.Worker(SETTINGS) for _ in range(NUM_WORKERS)]
  for decoder in started:
    workers.put(decoder)
  # Compiles before the first request.
  run(np.zeros((1, *SETTINGS['resolution'], 3), np.float32))
  yield
  for decoder in started:
    decoder.close()


run = load(MODEL)
app = applications.Starlette(lifespan=ready, routes=[
    routing.Route('/predict', answer, methods=['POST']),
    routing.Route('/health', health)])
