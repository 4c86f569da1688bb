"""Pre-training of the small ViT `photos` on 100,000 photographs.

    python main.py --config=configs/photos.py:source=tiny-imagenet-200 \
        --workdir=runs/photos

`source` is Tiny ImageNet as it is published, in 200 classes. The stage `coarse`
trains with patches of 8 pixels, which cost a quarter; `fine` continues with
patches of 4 pixels. `vit_jax.load('photos')` has weights of this recipe;
vit_jax/weights/bundled/photos.md tells how they were trained.

Hardware: one CPU core, 2:20 hours, estimated from 375 images/s with patches of
8 pixels and 93 with patches of 4 (measured 2026-11-26, 2-core Xeon). The whole
recipe has not been run.
"""

from typing import Any

from ml_collections import ConfigDict


def get_config(
    source: str = 'tiny-imagenet-200', test_split: str = 'val',
    coarse: int = 10, fine: int = 5, width: int = 128, depth: int = 7,
) -> ConfigDict:
  """Returns the stages `coarse` and `fine`.

  Args:
    source: the photographs; see `data.source`.
    test_split: split of the images that are never trained on.
    coarse: epochs with patches of 8 pixels.
    fine: epochs with patches of 4 pixels.
    width: width of the model; attention heads have 32 channels.
    depth: number of layers.
  """
  return ConfigDict({
      'batch_size': 128,
      'model': {
          'width': width, 'depth': depth, 'mlp_dim': 4 * width,
          'num_heads': width // 32, 'pooling': 'average',
          # Faster than a loop on CPUs, whose memory is large enough.
          'unroll': depth, 'remat': 'none',
      },
      'data': {
          'source': source, 'split': 'train', 'resolution': 32,
          'train_ops': [{'op': 'inception_crop', 'area': [0.35, 1.0]},
                        {'op': 'flip'}],
          'cache_mib': 1024,  # All images.
      },
      'objective': {'label_smoothing': 0.1},
      'evals': {'test': {'split': test_split, 'every': {'percent': 10}}},
      'log': {'every': {'percent': 2}},
      # The last weights are used: the test split must not select any.
      'checkpoint': {'every': {'percent': 5}, 'best': ''},
      'stages': {
          'coarse': _stage(coarse, patch=8, schedule='constant'),
          'fine': {
              **_stage(fine, patch=4, schedule='cosine'),
              'init': {'stage': 'coarse', 'new': []}},
      },
  }, sort_keys=False)


def _stage(
    epochs: int, *, patch: int, schedule: str) -> dict[str, Any]:
  return {
      'total': {'epochs': epochs},
      # Activations of a microbatch fit into the cache.
      'accumulation': 128 // patch ** 2,
      'model': {'patch': patch},
      'optimizer': {
          'name': 'muon', 'learning_rate': 0.005, 'weight_decay': 0.05,
          'clip_norm': 1.0,
          'schedule': {'name': schedule, 'warmup': {'percent': 3}},
      },
  }
