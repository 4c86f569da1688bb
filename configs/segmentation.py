"""Semantic segmentation of your images, from any checkpoint.

    python main.py --workdir=runs/streets --config.init.checkpoint=photos \
        --config=configs/segmentation.py:source=./streets,classes=sky+road

`source` holds images/ and masks/ (docs/data.md), or is a TFDS dataset with
masks; the classes are the mask values 0, 1, .... A decoder of transposed
convolutions predicts the classes of pixels from the patch tokens. Images are
resized to height x width, and the metrics are those of the images and masks at
their own size.

Hardware: 2 CPU cores, for `photos` with images of 96 x 128. Measured results
are in docs/segmentation.md. For a ViT-S/14, use for example
`height=448,width=448,learning_rate=1e-4` on a GPU.
"""

from ml_collections import ConfigDict

FROZEN = {'all': [], 'decoder': [r'(?!head/).*'],
          'lora': [r'(?!head/|lora/).*']}


def get_config(
    source: str, classes: str, train: str = 'all', widths: str = '128+64',
    height: int = 96, width: int = 128, epochs: int = 20, batch_size: int = 8,
    learning_rate: float = 1e-3, model: str = '', ignored: int = 255,
    split: str = '',
) -> ConfigDict:
  """Returns the config of a decoder on a backbone.

  Args:
    source: data with masks; see docs/data.md.
    classes: names of the mask values from 0, joined by '+'.
    train: weights to train: 'all', 'decoder', or 'lora' for the decoder and
      adapters of rank 8.
    widths: channels of the stages of the decoder, joined by '+', each of which
      doubles the resolution; '' for a single linear layer.
    height: height of the images of the model, a multiple of its patches.
    width: width of these images.
    epochs: passes over the training images.
    batch_size: global batch size.
    learning_rate: highest learning rate.
    model: model variant, such as 'S/14'; '' uses that of the checkpoint.
    ignored: value of mask pixels without a class.
    split: split to evaluate on; '' is that of published results, such as test.
  """
  if train not in FROZEN:
    raise ValueError(
        f'train must be one of {", ".join(FROZEN)}, but is {train!r}.')
  channels = [int(number) for number in widths.split('+') if number]
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': batch_size,
      'model': {
          **({'variant': model} if model else {}),
          # At least four predictions along each side of a patch.
          'decoder': {'widths': channels, 'cells': max(1, 4 >> len(channels))}},
      'objective': {'name': 'segmentation', 'classes': classes.split('+'),
                    'ignored': ignored},
      'lora': {'rank': 8 if train == 'lora' else 0},
      'data': {
          'source': source, 'target': 'masks', 'split': 'train',
          'resolution': [height, width],
          'train_ops': [
              {'op': 'inception_crop', 'area': [0.3, 1.0]}, {'op': 'flip'},
              {'op': 'color_jitter'}],
          'eval_ops': [{'op': 'resize'}],
      },
      'optimizer': {
          'name': 'adam', 'learning_rate': learning_rate, 'weight_decay': 0.05,
          'clip_norm': 1.0, 'frozen': FROZEN[train],
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
      },
      'evals': {split or 'test': {
          'name': 'segmentation_head', 'split': split,
          'every': {'percent': 25}}},
      'log': {'every': {'percent': 5}},
  }, sort_keys=False)
