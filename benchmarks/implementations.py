"""Programs measured by `gpu.py`, one per process.

    python benchmarks/implementations.py timm '{"task": "train",
        "model": "B/16", "resolution": 224, "batch_size": 8,
        "dtype": "float32"}'

Compiles, then reads numbers from standard input, runs the task that many times,
and answers with a line of JSON. The number 0 asks for facts: versions, device,
memory. All train with softmax loss, 1,000 classes, the exact GELU and Adam on
float32 parameters, on one batch that stays on the device; `bfloat16` is
autocast in torch and `model.dtype` here. Our step is that of a run, including
uint8 images and metrics.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
NUM_CLASSES = 1000
# Photos, and file names of each: Grain shuffles a small dataset slower per
# example than a large one (0.3 ms of 64, 0.01 of 10,000).
NUM_PHOTOS, NUM_LINKS = 64, 64
HEIGHT, WIDTH, QUALITY = 375, 500, 90  # 110 kB per file, as in ImageNet.
TIMM_SIZES = {
    'Ti': 'tiny', 'S': 'small', 'B': 'base', 'L': 'large', 'H': 'huge'}


def ours(setting):
  """Our training step or forward pass."""
  experiment = _experiment(setting)
  from vit_jax.extras.plan import model_flops
  flops = model_flops.per_image(experiment)
  if setting.task == 'inference':
    from vit_jax.extras.plan import step_speed
    return step_speed.inference(
        experiment, experiment.init_state().params)[0], {
            'flops_per_image': flops.forward}
  training = _training(experiment)
  return lambda count: training().run(count), {
      'flops_per_image': flops.training}


def ours_with_input(setting):
  """Our training step on JPEGs in ArrayRecord files, written to `folder`."""
  photos = pathlib.Path(setting.folder, 'photos')
  write_photos(photos)
  subprocess.run(
      [sys.executable, os.fspath(ROOT / 'main.py'), 'data', 'prepare',
       f'--source={photos}', f'--to={setting.folder}', '--name=photos'],
      check=True, env={**os.environ, 'JAX_PLATFORMS': 'cpu'})
  experiment = _experiment(
      setting, source=os.path.join(setting.folder, 'photos', '1.0.0'),
      num_workers=os.cpu_count())
  training, batches = _training(experiment), experiment.batches(start_step=0)
  from vit_jax.extras.plan import model_flops

  def run(count):
    for batch in itertools.islice(batches, count):
      loss = training().train(batch)
    loss.block_until_ready()

  return run, {'flops_per_image': model_flops.per_image(experiment).training}


def photo(rng):
  """Returns a synthetic photograph with the decoding cost of ImageNet's.

  The amplitude spectrum of natural images falls as 1 / frequency (Field 1987,
  https://doi.org/10.1364/JOSAA.4.002379); channels are correlated.
  """
  import numpy as np
  from PIL import Image
  frequency = np.hypot(
      np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None])
  frequency[0, 0] = 1.0

  def field(power):
    noise = np.fft.rfft2(rng.standard_normal((HEIGHT, WIDTH)))
    values = np.fft.irfft2(noise / frequency**power, (HEIGHT, WIDTH))
    return (values - values.mean()) / values.std()

  light = 45 * field(1.0)
  pixels = np.stack([118 + light + 14 * field(1.3) for _ in range(3)], -1)
  return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def write_photos(folder):
  """Writes photos as class folders of a training and a test split."""
  import numpy as np
  rng = np.random.default_rng(0)
  originals = folder / '.photos'  # Hidden folders are not classes.
  originals.mkdir(parents=True)
  for number in range(NUM_PHOTOS):
    photo(rng).save(originals / f'{number}.jpg', quality=QUALITY)
  for split, files in (('train', NUM_PHOTOS * NUM_LINKS), ('test', 1)):
    for number in range(max(files, NUM_CLASSES)):
      path = folder / split / str(number % NUM_CLASSES) / f'{number}.jpg'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.hardlink_to(originals / f'{number % NUM_PHOTOS}.jpg')


def _config(setting, *, source='imagenet2012', num_workers=0):
  from vit_jax.extras.plan import workload
  return workload.config(
      setting.model, resolution=setting.resolution,
      batch_size=setting.batch_size, dtype=setting.dtype, source=source,
      num_workers=num_workers,
      overrides=['model.gelu=exact', *setting.overrides])


def _experiment(setting, **options):
  import jax

  from vit_jax.experiment import build as build_lib
  return build_lib.build(
      _config(setting, **options), jax.devices()[:1], data_optional=True)


def _training(experiment):
  """Compiles the step; the returned function allocates the state."""
  from vit_jax.extras.plan import step_speed
  step = experiment.train_step.lower(
      experiment.abstract_state, experiment.abstract_batch).compile()
  return functools.cache(lambda: step_speed.Training(experiment, step))


def cifar10(setting):
  """A run of configs/cifar10.py:recipe=best for `epochs`; see `cifar10.py`."""

  def run(count):
    assert count == 1, count
    workdir = pathlib.Path(setting.folder, 'cifar10')
    subprocess.run(
        [sys.executable, os.fspath(ROOT / 'main.py'),
         f'--config=configs/cifar10.py:recipe=best,epochs={setting.epochs}',
         f'--workdir={workdir}', f'--config.data.data_dir={setting.data_dir}',
         *(f'--config.{text}' for text in setting.overrides)],
        check=True, cwd=ROOT)
    rows = map(json.loads, (workdir / 'metrics.jsonl').open())
    return {'accuracy': [row['test/accuracy'] for row in rows
                         if 'test/accuracy' in row][-1]}

  return run, {}


def matmul(setting):
  """The encoder's products with parameters; in training, with gradients."""
  import jax

  model = _config(setting).model
  rows, columns = model.grid((setting.resolution, setting.resolution))
  tokens = rows * columns + model.num_prefix
  keys = map(functools.partial(jax.random.fold_in, jax.random.key(0)),
             itertools.count())
  layer = [
      tuple(jax.random.normal(next(keys), shape, setting.dtype) for shape in (
          (setting.batch_size * tokens, fan_in), (fan_in, fan_out),
          (setting.batch_size * tokens, fan_out)))
      for fan_in, fan_out in (
          (model.width, 3 * model.width), (model.width, model.width),
          (model.width, model.mlp_dim), (model.mlp_dim, model.width))]
  trains = setting.task == 'train'

  @jax.jit
  def multiply(layer):
    return [(x @ kernel, *((grads @ kernel.T, x.T @ grads) if trains else ()))
            for x, kernel, grads in layer]

  multiply = multiply.lower(layer).compile()

  def run(count):
    for _ in range(count * model.depth):
      results = multiply(layer)
    jax.block_until_ready(results)

  return run, {'flops_per_image': 2 * (3 if trains else 1) * model.depth * (
      tokens * sum(kernel.size for _, kernel, _ in layer))}


def plain_flax(setting):
  """A straightforward Flax encoder."""
  import jax
  import jax.numpy as jnp
  import plain_flax as plain

  model = plain.ViT(
      _config(setting).model, NUM_CLASSES, jnp.dtype(setting.dtype))
  images = jax.random.normal(jax.random.key(0), (
      setting.batch_size, setting.resolution, setting.resolution, 3))
  if setting.task == 'train':
    labels = jnp.zeros(setting.batch_size, jnp.int32)
    return plain.training(model, images, labels), {}
  return plain.inference(model, images), {}


def timm_eager(setting):
  """timm in eager mode."""
  return _timm(setting, compiled=lambda model: model)


def timm_compiled(setting):
  """timm with `torch.compile`."""
  import torch
  return _timm(setting, compiled=torch.compile)


def _timm(setting, *, compiled):
  import timm
  import torch
  size, patch = setting.model.split('/')
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  # TF32 on GPUs, as in JAX.
  torch.set_float32_matmul_precision('high')
  torch.manual_seed(0)
  model = timm.create_model(
      f'vit_{TIMM_SIZES[size]}_patch{patch}_224', num_classes=NUM_CLASSES,
      img_size=setting.resolution).to(device)
  apply = compiled(model)
  images = torch.randn(
      setting.batch_size, 3, setting.resolution, setting.resolution,
      device=device)
  labels = torch.zeros(setting.batch_size, dtype=torch.long, device=device)
  autocast = torch.autocast(
      device, torch.bfloat16, enabled=setting.dtype == 'bfloat16')
  optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

  def train():
    optimizer.zero_grad(set_to_none=True)
    with autocast:
      loss = torch.nn.functional.cross_entropy(apply(images), labels)
    loss.backward()
    optimizer.step()

  def infer():
    with torch.inference_mode(), autocast:
      apply(images)

  model.train(setting.task == 'train')
  action = {'train': train, 'inference': infer}[setting.task]

  def run(count):
    for _ in range(count):
      action()
    if device == 'cuda':
      torch.cuda.synchronize()

  if apply is not model:
    run(1)  # Compiles.
  return run, {}


def memory(device_library):
  """Returns name and peak memory of the device, as far as known."""
  if device_library == 'torch':
    import torch
    if not torch.cuda.is_available():
      return {}
    return {'device': torch.cuda.get_device_name(),
            'peak_bytes': torch.cuda.max_memory_allocated()}
  import jax
  device = jax.devices()[0]
  return {'device': device.device_kind,
          'peak_bytes': (device.memory_stats() or {}).get('peak_bytes_in_use')}


# Required modules and constructor by name.
IMPLEMENTATIONS = {
    'ours': (('jax', 'flax'), ours),
    'ours-with-input': (('jax', 'flax'), ours_with_input),
    'cifar10': ((), cifar10),
    'matmul': (('jax',), matmul),
    'plain-flax': (('jax', 'flax', 'optax'), plain_flax),
    'timm': (('torch', 'timm'), timm_eager),
    'timm-compiled': (('torch', 'timm'), timm_compiled),
}


def main(name, text=None):
  """Runs the task; without a setting, exits with 0 if it is installed."""
  needs, build = IMPLEMENTATIONS[name]
  if text is None:
    sys.exit(not all(map(importlib.util.find_spec, needs)))
  sys.path.insert(0, os.fspath(ROOT))
  # Implementations share the device memory.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # Output of libraries goes to standard error.
  setting = argparse.Namespace(**{'overrides': [], **json.loads(text)})
  run, facts = build(setting)
  for line in sys.stdin:
    if int(line):
      answer = {'images': int(line) * setting.batch_size, **(
          run(int(line)) or {})}
    else:
      answer = {'versions': {
          library: importlib.metadata.version(library) for library in needs},
                **facts, **(memory(needs[0]) if needs else {})}
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
