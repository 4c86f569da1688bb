"""Ours and others, each in a process of its own, for `benchmarks/compare.py`.

    python benchmarks/contestants.py timm '{"task": "train", "model": "B/16",
        "resolution": 224, "batch_size": 8, "dtype": "float32"}'

For each line of standard input, a number, it does the task so many times and
writes a line of JSON. All train with the softmax loss of 1,000 classes and Adam
on float32 parameters, on one batch that stays on the device, and have the exact
GELU; `bfloat16` is torch's autocast there and our `model.dtype` here. The steps
that are ours are the runs' own: uint8 images, metrics and norms included.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys

NUM_CLASSES = 1000
TIMM_SIZES = {
    'Ti': 'tiny', 'S': 'small', 'B': 'base', 'L': 'large', 'H': 'huge'}


def ours(setting):
  """This codebase's training step, or its forward pass."""
  import jax

  from vit_jax.benchmarking import step
  from vit_jax.benchmarking import workload
  from vit_jax.experiment import build as experiment_lib

  config = workload.config(
      setting.model, resolution=setting.resolution,
      batch_size=setting.batch_size, dtype=setting.dtype,
      source='imagenet2012',
      overrides=['model.gelu=exact', *setting.overrides])
  experiment = experiment_lib.build(
      config, jax.devices()[:1], expected_data=True)
  training = step.Training(experiment, experiment.train_step)
  if setting.task == 'train':
    return training.run
  return step.inference(experiment, training.params)[0]


def plain_flax(setting):
  """The encoder that one writes first."""
  import jax
  import jax.numpy as jnp
  import plain_flax as plain

  from vit_jax import models

  model = plain.ViT(
      models.parse({'variant': setting.model}), NUM_CLASSES,
      jnp.dtype(setting.dtype))
  images = jax.random.normal(jax.random.key(0), (
      setting.batch_size, setting.resolution, setting.resolution, 3))
  if setting.task == 'train':
    labels = jnp.zeros(setting.batch_size, jnp.int32)
    return plain.training(model, images, labels)
  return plain.inference(model, images)


def timm_eager(setting):
  """timm's model, as PyTorch runs it."""
  return _timm(setting, compiled=lambda model: model)


def timm_compiled(setting):
  """timm's model behind `torch.compile`."""
  import torch
  return _timm(setting, compiled=torch.compile)


def timm_autotuned(setting):
  """The same with the slowest and best of the compiler's modes."""
  import torch
  return _timm(setting, compiled=lambda model: torch.compile(
      model, mode='max-autotune'))


def _timm(setting, *, compiled):
  import torch
  timm = _import_timm(torch)
  size, patch = setting.model.split('/')
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  # What JAX takes for float32 products on a GPU, too.
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

  return run


def _import_timm(torch):
  """Imports timm, with a torchvision made for another torch if need be.

  Its models use nothing of what torchvision has compiled; but torchvision's
  import asks for these two operations.
  """
  try:
    import timm
  except RuntimeError as error:
    if 'torchvision::' not in str(error):
      raise
    global _stubs  # They last as long as this does.
    _stubs = torch.library.Library('torchvision', 'DEF')
    for name in ('nms', 'qnms'):
      _stubs.define(
          f'{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
    for name in [n for n in sys.modules
                 if n.split('.')[0] in ('timm', 'torchvision')]:
      del sys.modules[name]
    import timm
  return timm


# By name: what it needs, and what makes it.
CONTESTANTS = {
    'ours': (('jax', 'flax'), ours),
    'plain-flax': (('jax', 'flax', 'optax'), plain_flax),
    'timm': (('torch', 'timm'), timm_eager),
    'timm-compiled': (('torch', 'timm'), timm_compiled),
    'timm-autotuned': (('torch', 'timm'), timm_autotuned),
}


def main(name, text=None):
  """Does the task as often as each line says; of a name alone, if it can."""
  needs, build = CONTESTANTS[name]
  if text is None:
    sys.exit(not all(map(importlib.util.find_spec, needs)))
  root = pathlib.Path(__file__).parents[1]
  sys.path.insert(0, os.fspath(root))
  # Contestants share the device: none may take all of its memory at once.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # What libraries print is no answer.
  setting = argparse.Namespace(**{'overrides': [], **json.loads(text)})
  run = build(setting)
  for line in sys.stdin:
    run(int(line))
    print(json.dumps({'images': int(line) * setting.batch_size}),
          file=answers, flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
