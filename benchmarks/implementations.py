"""Implementations measured by `benchmarks/compare.py`, one per process.

    python benchmarks/implementations.py timm '{"task": "train",
        "model": "B/16", "resolution": 224, "batch_size": 8,
        "dtype": "float32"}'

Reads numbers from standard input, runs the task that many times, and answers
with a line of JSON. All train with softmax loss, 1,000 classes, the exact GELU
and Adam on float32 parameters, on one batch that stays on the device;
`bfloat16` is autocast in torch and `model.dtype` here. Our step is that of a
run, including uint8 images and metrics.
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
  """Our training step or forward pass."""
  import jax

  from vit_jax.benchmarking import step_speed
  from vit_jax.benchmarking import workload
  from vit_jax.experiment import build as experiment_lib

  config = workload.config(
      setting.model, resolution=setting.resolution,
      batch_size=setting.batch_size, dtype=setting.dtype,
      source='imagenet2012',
      overrides=['model.gelu=exact', *setting.overrides])
  experiment = experiment_lib.build(
      config, jax.devices()[:1], expected_data=True)
  training = step_speed.Training(experiment, experiment.train_step)
  if setting.task == 'train':
    return training.run
  return step_speed.inference(experiment, training.params)[0]


def plain_flax(setting):
  """A straightforward Flax encoder."""
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

  return run


# Required modules and constructor by name.
IMPLEMENTATIONS = {
    'ours': (('jax', 'flax'), ours),
    'plain-flax': (('jax', 'flax', 'optax'), plain_flax),
    'timm': (('torch', 'timm'), timm_eager),
    'timm-compiled': (('torch', 'timm'), timm_compiled),
}


def main(name, text=None):
  """Runs the task; without a setting, exits with 0 if it is installed."""
  needs, build = IMPLEMENTATIONS[name]
  if text is None:
    sys.exit(not all(map(importlib.util.find_spec, needs)))
  root = pathlib.Path(__file__).parents[1]
  sys.path.insert(0, os.fspath(root))
  # Implementations share the device memory.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # Output of libraries goes to standard error.
  setting = argparse.Namespace(**{'overrides': [], **json.loads(text)})
  run = build(setting)
  for line in sys.stdin:
    run(int(line))
    print(json.dumps({'images': int(line) * setting.batch_size}),
          file=answers, flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
