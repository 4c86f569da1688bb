"""Comparison of optimizers: AdamW, schedule-free AdamW and Muon.

    python main.py sweep --config=configs/optimizers.py \
        --workdir=runs/optimizers

trains a small ViT on the built-in digits. For photographs, use
`:source=cifar10` or another data source, with at least 32 pixels.

Every optimizer has the same model, steps and number of learning rates. The best
rate on the last 10 % of the training images trains on all of them with three
seeds. `sweep.json` has the test accuracies at equal steps. For a comparison at
equal time, `metrics.jsonl` of each run has `train/core_hours`, its wall-clock
time, `train/images_per_sec`, and `test/accuracy` after each fifth of the run.

Hardware: one CPU core, an estimated hour: 18 runs of 1,000 steps, at 700 images
per CPU second with AdamW, 703 with schedule-free AdamW and 630 with Muon
(training step alone, measured 2026-11-27 on an AMD EPYC). Measured results are
in docs/sweeps.md.
"""

from typing import Any

from ml_collections import ConfigDict

from configs import transfer

# Name and learning rates, each three times the one before.
OPTIMIZERS: dict[str, tuple[str, tuple[float, ...]]] = {
    'adamw': ('adam', (1e-3, 3e-3, 9e-3)),
    'schedule_free_adamw': ('schedule_free', (1e-3, 3e-3, 9e-3)),
    'muon': ('muon', (2e-3, 6e-3, 18e-3)),
}


def get_config(
    source: str = 'digits', steps: int = 1000, width: int = 96, depth: int = 6,
    patch: int = 8, resolution: int = 32,
) -> ConfigDict:
  """Returns one task for each optimizer.

  Args:
    source: dataset with a training and a test split; see `data.source`.
    steps: number of steps of 128 images.
    width: width of the model; attention heads have 32 channels.
    depth: number of layers.
    patch: patch size in pixels.
    resolution: image size in pixels.
  """
  label = transfer.label(source)
  return ConfigDict({
      'total': {'steps': steps},
      'batch_size': 128,
      # Activations of a microbatch fit into the cache of a CPU.
      'accumulation': 2,
      'model': {
          'width': width, 'depth': depth, 'mlp_dim': 4 * width,
          'num_heads': width // 32, 'patch': patch, 'pooling': 'average',
          'unroll': depth, 'remat': 'none',  # Faster on CPUs.
      },
      'data': {
          'source': source, 'split': 'train', 'resolution': resolution,
          'train_ops': [{'op': 'inception_crop', 'area': [0.35, 1.0]},
                        *([] if label == 'digits' else [{'op': 'flip'}])],
          'eval_ops': [{'op': 'resize'}],
          'cache_mib': 1024,  # Many runs read the same images.
      },
      'objective': {'label_smoothing': 0.1},
      'optimizer': _optimizer('adamw'),
      'evals': {'test': {'batch_size': 500, 'every': {'percent': 20}}},
      'log': {'every': {'percent': 5}},
      'checkpoint': {'every': {'percent': 50}, 'best': ''},
      'sweep': {
          'held_out': 10, 'seeds': 3, 'columns': 'steps',
          'tasks': {name: {
              'optimizer': _optimizer(name),
              'sweep': {
                  'grid': {'optimizer': {
                      'learning_rate': list(OPTIMIZERS[name][1])}},
                  'report': {f'{label}/{name}/{steps}': 'test/accuracy'}},
          } for name in OPTIMIZERS},
      },
  }, sort_keys=False)


def _optimizer(name: str) -> dict[str, Any]:
  kind, rates = OPTIMIZERS[name]
  # Schedule-free optimizers have no decreasing schedule.
  schedule = 'constant' if kind == 'schedule_free' else 'cosine'
  return {
      'name': kind, 'learning_rate': rates[1], 'weight_decay': 0.05,
      'clip_norm': 1.0,
      'schedule': {'name': schedule, 'warmup': {'percent': 5}}}
