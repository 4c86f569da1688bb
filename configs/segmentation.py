"""Semantic segmentation of your images, from any checkpoint.

    python main.py \
        --config=configs/segmentation.py:source=scenes,classes=sky+road \
        --config.init.checkpoint=photos --workdir=runs/segmentation

See docs/segmentation.md.
"""

from ml_collections import ConfigDict

DECODERS = {'linear': {'widths': [], 'cells': 4},
            'convolutions': {'widths': [128, 64], 'cells': 1}}


def get_config(
    source: str, classes: str, decoder: str = 'convolutions',
    train: str = 'all', height: int = 96, width: int = 128, epochs: int = 20,
    batch_size: int = 16, model: str = '', ignored: int = 255,
    split: str = 'val',
) -> ConfigDict:
  """Returns the config of a decoder on a backbone.

  Args:
    source: data with masks; see docs/data.md.
    classes: names of the mask values from 0, joined by '+'.
    decoder: 'linear' or 'convolutions'.
    train: 'decoder' keeps the backbone frozen; 'lora' adapts it with low rank;
      'all' trains all weights.
    height: height of the images of the model, a multiple of its patches.
    width: width of these images.
    epochs: passes over the training images.
    batch_size: global batch size.
    model: model variant, such as 'S/14'; '' uses that of the checkpoint.
    ignored: value of mask pixels without a class.
    split: split to evaluate on.
  """
  frozen = {'decoder': [r'(?!head/).*'], 'lora': [r'(?!head/|lora/).*'],
            'all': []}
  for name, value, known in (
      ('decoder', decoder, DECODERS), ('train', train, frozen)):
    if value not in known:
      raise ValueError(
          f'{name} must be one of {", ".join(known)}, but is {value!r}.')
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': batch_size,
      'model': {**({'variant': model} if model else {}),
                'decoder': DECODERS[decoder]},
      'objective': {'name': 'segmentation', 'classes': classes.split('+'),
                    'ignored': ignored},
      'lora': {'rank': 8 if train == 'lora' else 0},
      'data': {
          'source': source, 'split': 'train', 'resolution': [height, width],
          'train_ops': [
              {'op': 'inception_crop', 'area': [0.3, 1.0]}, {'op': 'flip'},
              {'op': 'color_jitter'}],
          'eval_ops': [{'op': 'resize'}],
      },
      'optimizer': {
          'name': 'adam', 'learning_rate': 1e-3, 'weight_decay': 0.05,
          'clip_norm': 1.0, 'frozen': frozen[train],
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
      },
      'evals': {split: {'name': 'segmentation_head', 'split': split,
                        'every': {'percent': 25}}},
      'log': {'every': {'percent': 5}},
  }, sort_keys=False)
