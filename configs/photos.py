"""Pre-training of the small ViT `photos` on 100,000 photographs.

    python main.py --config=configs/photos.py:source=tiny-imagenet-200 \
        --workdir=runs/photos

`source` is Tiny ImageNet as it is published, in 200 classes. The stage `coarse`
trains with patches of 8 pixels, which cost a quarter; `fine` continues with
patches of 4 pixels. The first edition of `photos` has the weights of such a
run.

The second edition, which `vit_jax.load('photos')` has, first learned the
features of a teacher without labels, whose outputs for two crops of each
photograph are computed once:

    python main.py data prepare --source=tiny-imagenet-200 --splits=train \
        --to=tfds --name=photos_taught --teacher=TEACHER --crops=2 \
        --teacher-resolution=98 --config.data.resolution=40 \
        --config.data.train_ops='[{"op": "inception_crop",
        "area": [0.35, 1.0]}, {"op": "flip"}]'
    python main.py --workdir=runs/taught --config.data.data_dir=tfds --config=\
configs/photos.py:source=photos_taught:1.0.0,objective=distill_features,\
coarse=1.25,fine=2,labelled=4
    python main.py convert --source=runs/taught/labelled --set patch=4 \
        --set resolution=32 --format=npz --dtype=float16 \
        --target=runs/photos.npz

The stage `labelled` adds the loss on the labels with a small weight. In all
three stages, images have 40 pixels; patches have 10 in `coarse` and 5 in the
others. The run of the package was nearly the same: 1,896, 3,000 and 6,000 steps
(1.24, 1.96 and 3.92 epochs), with crops of photographs that had been reduced to
40 pixels. docs/distillation.md describes TEACHER, and
vit_jax/weights/bundled/photos.md the result.

Hardware: 2 CPU cores, from labels 2:12 hours beside other work; without it,
1:20 hours, estimated from 370 and 155 images/s with patches of 8 and 4 pixels.
From the teacher, about 6 core-hours, 1.1 of them for its outputs. Accuracy on
the 10,000 validation images, stored with 40 pixels and resized to 32: 37.98 %
from labels (2026-11-26 on a Xeon, seed 0), 46.54 % from the teacher (2026-11-30
on an EPYC, seed 0).
"""

from typing import Any, NamedTuple

from ml_collections import ConfigDict

WHOLE = ({'op': 'resize'},)
CROP_AND_FLIP = ({'op': 'inception_crop', 'area': [0.35, 1.0]}, {'op': 'flip'})


class Objective(NamedTuple):
  """How the model is trained with an objective.

  Attributes:
    settings: section `objective`.
    evaluator: what is evaluated on held-out images.
    train_ops: operations on training images.
    resolution: size of the images.
    held_out: percent of the training split that are held out, in place of the
      images of `test_split`.
    accumulates: whether a batch is divided, so that activations of a microbatch
      fit into the cache.
  """
  settings: dict[str, Any]
  evaluator: str = 'objective'
  train_ops: tuple[dict[str, Any], ...] = CROP_AND_FLIP
  resolution: int = 32
  held_out: int = 0
  accumulates: bool = True


# All but 'supervised', and the stage `labelled`, use no labels. As in
# configs/masked_patch_small.py, short runs have small decoders, few views, and
# views of whole images.
OBJECTIVES = {
    'supervised': Objective({'label_smoothing': 0.1}, evaluator='auto'),
    # Images are stored with the outputs of the teacher: 40 pixels, cropped.
    'distill_features': Objective(
        {}, train_ops=WHOLE, resolution=40, held_out=2),
    'mae': Objective(
        {'decoder_width': 64, 'decoder_depth': 2, 'decoder_heads': 4}),
    # It embeds each microbatch twice.
    'lejepa': Objective({'directions': 256, 'hidden': 256, 'views': {
        'num_local': 2, 'local_size': 16, 'global_area': (0.4, 1.0),
        'local_area': (0.2, 0.5)}}, train_ops=WHOLE, accumulates=False),
}


def get_config(
    source: str = 'tiny-imagenet-200', test_split: str = 'val',
    coarse: float = 5.0, fine: float = 5.0, labelled: float = 0.0,
    width: int = 128, depth: int = 7, objective: str = 'supervised',
) -> ConfigDict:
  """Returns the stages `coarse`, `fine` and `labelled`.

  Args:
    source: the photographs; see `data.source`.
    test_split: split of the images that are never trained on; for a teacher,
      they are the last 2 % of the training split.
    coarse: epochs with large patches; 0 leaves the stage out.
    fine: epochs with small patches.
    labelled: further epochs of 'distill_features' with labels, too; 0 leaves
      the stage out.
    width: width of the model; attention heads have 32 channels.
    depth: number of layers.
    objective: 'supervised', or without labels 'distill_features', 'mae' or
      'lejepa'.
  """
  if objective not in OBJECTIVES:
    raise ValueError(
        f'objective must be one of {", ".join(OBJECTIVES)}, but is '
        f'{objective!r}.')
  how = OBJECTIVES[objective]
  first = 100 - how.held_out
  stages = {'fine': _stage(fine, how, grid=8, schedule='cosine')}
  if coarse:
    stages = {
        'coarse': _stage(coarse, how, grid=4, schedule='constant'),
        'fine': {**stages['fine'], 'init': {'stage': 'coarse', 'new': []}}}
  if labelled:
    if objective != 'distill_features':
      raise ValueError(
          'labelled is a stage of objective=distill_features, but objective is '
          f'{objective!r}.')
    stages['labelled'] = {
        **_stage(labelled, how, grid=8, schedule='cosine', learning_rate=0.002),
        'init': {'stage': 'fine', 'new': ['head/.*']},
        'objective': {'label_weight': 0.1, 'label_smoothing': 0.1}}
  return ConfigDict({
      'batch_size': 128,
      'model': {
          'width': width, 'depth': depth, 'mlp_dim': 4 * width,
          'num_heads': width // 32, 'pooling': 'average',
          # Faster than a loop on CPUs, whose memory is large enough.
          'unroll': depth, 'remat': 'none',
      },
      'data': {
          'source': source,
          'split': f'train[:{first}%]' if how.held_out else 'train',
          'resolution': how.resolution, 'train_ops': [*how.train_ops],
          'cache_mib': 1024,  # All images.
      },
      'objective': {'name': objective, **how.settings},
      'evals': {'test': {
          'name': how.evaluator,
          'split': f'train[{first}%:]' if how.held_out else test_split,
          'every': {'percent': 10}}},
      'log': {'every': {'percent': 2}},
      # The last weights are used: the test split must not select any.
      'checkpoint': {'every': {'percent': 5}, 'best': ''},
      'stages': ConfigDict(stages, sort_keys=False),
  }, sort_keys=False)


def _stage(
    epochs: float, how: Objective, *, grid: int, schedule: str,
    learning_rate: float = 0.005,
) -> dict[str, Any]:
  return {
      'total': {'epochs': epochs},
      'accumulation': grid ** 2 // 8 if how.accumulates else 1,
      'model': {'patch': how.resolution // grid},
      'optimizer': {
          'name': 'muon', 'learning_rate': learning_rate,
          'weight_decay': 0.05, 'clip_norm': 1.0,
          'schedule': {'name': schedule, 'warmup': {'percent': 3}},
      },
  }
