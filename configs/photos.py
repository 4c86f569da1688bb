"""Pre-training of the small ViT `photos` on 100,000 photographs.

    python main.py --config=configs/photos.py:source=tiny-imagenet-200 \
        --workdir=runs/photos

`source` is Tiny ImageNet as it is published, in 200 classes. The stage `coarse`
trains with patches of 8 pixels, which cost a quarter; `fine` continues with
patches of 4 pixels. `vit_jax.load('photos')` has the weights of such a run:
vit_jax/weights/bundled/photos.md.

Hardware: 2 CPU cores, 2:12 hours beside other work; without it, 1:20 hours,
estimated from 370 and 155 images/s. Accuracy on the 10,000 validation images,
reduced to 40 pixels: 37.98 % (measured 2026-11-26 on a Xeon, seed 0).
"""

from typing import Any

from ml_collections import ConfigDict

# The other objectives use no labels. As in configs/masked_patch_small.py, short
# runs have small decoders, few views, and views of whole images.
OBJECTIVES = {
    'supervised': {'label_smoothing': 0.1},
    'mae': {'decoder_width': 64, 'decoder_depth': 2, 'decoder_heads': 4},
    'lejepa': {'directions': 256, 'hidden': 256, 'views': {
        'num_local': 2, 'local_size': 16, 'global_area': (0.4, 1.0),
        'local_area': (0.2, 0.5)}},
}


def get_config(
    source: str = 'tiny-imagenet-200', test_split: str = 'val',
    coarse: int = 5, fine: int = 5, width: int = 128, depth: int = 7,
    objective: str = 'supervised',
) -> ConfigDict:
  """Returns the stages `coarse` and `fine`.

  Args:
    source: the photographs; see `data.source`.
    test_split: split of the images that are never trained on.
    coarse: epochs with patches of 8 pixels; 0 leaves the stage out.
    fine: epochs with patches of 4 pixels.
    width: width of the model; attention heads have 32 channels.
    depth: number of layers.
    objective: 'supervised', or without labels 'mae' or 'lejepa'.
  """
  if objective not in OBJECTIVES:
    raise ValueError(
        f'objective must be one of {", ".join(OBJECTIVES)}, but is '
        f'{objective!r}.')
  stages = {'fine': _stage(fine, objective, patch=4, schedule='cosine')}
  if coarse:
    stages = {
        'coarse': _stage(coarse, objective, patch=8, schedule='constant'),
        'fine': {**stages['fine'], 'init': {'stage': 'coarse', 'new': []}}}
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
          'train_ops': [{'op': 'resize'}] if objective == 'lejepa' else [
              {'op': 'inception_crop', 'area': [0.35, 1.0]}, {'op': 'flip'}],
          'cache_mib': 1024,  # All images.
      },
      'objective': {'name': objective, **OBJECTIVES[objective]},
      'evals': {'test': {
          'name': 'auto' if objective == 'supervised' else 'objective',
          'split': test_split, 'every': {'percent': 10}}},
      'log': {'every': {'percent': 2}},
      # The last weights are used: the test split must not select any.
      'checkpoint': {'every': {'percent': 5}, 'best': ''},
      'stages': ConfigDict(stages, sort_keys=False),
  }, sort_keys=False)


def _stage(
    epochs: int, objective: str, *, patch: int, schedule: str,
) -> dict[str, Any]:
  return {
      'total': {'epochs': epochs},
      # Activations of a microbatch fit into the cache; but LeJEPA embeds each
      # microbatch twice.
      'accumulation': 1 if objective == 'lejepa' else 128 // patch ** 2,
      'model': {'patch': patch},
      'optimizer': {
          'name': 'muon', 'learning_rate': 0.005, 'weight_decay': 0.05,
          'clip_norm': 1.0,
          'schedule': {'name': schedule, 'warmup': {'percent': 3}},
      },
  }
