"""Continued self-supervised pre-training on own images, without labels.

    python main.py --workdir=runs/continued --config=configs/continue.py:\
checkpoint=photos,data=./my_images,resolution=32,local_size=16

`checkpoint` is any address of weights, and `data` any value of `data.source`;
without labels, add `labels=false`, which leaves out k-NN and the best
checkpoint. Set `resolution` to that of the weights, by default 224: more pixels
cost more. docs/self_supervised.md says when it helps, what is measured, and how
the settings keep the model near its start.

Hardware: 2 CPU cores for small images: 45 images/s for `photos` with two global
and two local views of 32 and 16 pixels, on half of a busy core. Expected:
docs/self_supervised.md.
"""

from typing import Any

from ml_collections import ConfigDict

OBJECTIVES = ('lejepa', 'mae')


def get_config(
    checkpoint: str, data: str, objective: str = 'lejepa', epochs: int = 20,
    resolution: int = 224, local_size: int = 96, batch_size: int = 64,
    labels: bool = True,
) -> ConfigDict:
  """Returns the config.

  Args:
    checkpoint: the weights.
    data: the images.
    objective: 'lejepa' or 'mae'.
    epochs: length of training.
    resolution: image size in pixels; a multiple of the patch size.
    local_size: size of LeJEPA's local views; a multiple of the patch size.
    batch_size: global batch size.
    labels: whether the images have labels, which only the evaluation uses.
  """
  if objective not in OBJECTIVES:
    raise ValueError(
        f'objective must be one of {", ".join(OBJECTIVES)}, but is '
        f'{objective!r}.')
  lejepa = objective == 'lejepa'
  often = {'every': {'percent': 10}, 'at_start': True}
  split = {'train_split': 'train[:80%]', 'split': 'train[80%:]'}
  evals: dict[str, Any] = {
      'spread': {'name': 'spread', 'split': 'train', **often}}
  if labels:
    evals['knn'] = {'name': 'knn', **split, **often}
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': batch_size,
      'init': {'checkpoint': checkpoint,
               'new': ['(head|projector|masked_patch)/.*']},
      'data': {
          'source': data, 'split': 'train', 'resolution': resolution,
          'train_ops': [{'op': 'resize'}] if lejepa else [
              {'op': 'inception_crop', 'area': [0.35, 1.0]}, {'op': 'flip'}],
          'eval_ops': [{'op': 'resize'}],
          'cache_mib': 512,
      },
      'objective': {'name': objective, **({'views': {
          'num_local': 2, 'local_size': local_size, 'global_area': (0.4, 1.0),
          'local_area': (0.2, 0.5)}} if lejepa else {})},
      'optimizer': {
          'name': 'adam', 'learning_rate': 1e-4, 'weight_decay': 0.05,
          'decay_towards': 'start', 'clip_norm': 1.0, 'layer_decay': 0.75,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 10}},
      },
      'evals': evals,
      'checkpoint': {
          'every': {'percent': 10},
          'best': 'knn/accuracy' if labels else '',
          'stop_below': [('spread/feature_rank', 0.5)]},
      'log': {'every': {'percent': 5}},
  }, sort_keys=False)
