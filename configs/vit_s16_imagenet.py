"""ViT-S/16 from scratch on ImageNet-1k (arXiv 2205.01580).

    python main.py --config=configs/vit_s16_imagenet.py \
        --workdir=gs://bucket/s16 --config.data.data_dir=gs://bucket/tfds

For longer training, use --config=configs/vit_s16_imagenet.py:epochs=300.

A sweep evaluates on the last 1 % of the training images, as in the paper:

    python main.py sweep --config=configs/vit_s16_imagenet.py \
        --workdir=gs://bucket/s16_sweep --seeds=1 \
        --grid optimizer.learning_rate=0.0005,0.001,0.002

Hardware: a TPU v3-8 (6 to 7 hours for 90 epochs), or less with gradient
accumulation.
Expected top-1 accuracy: 76.5 % after 90 epochs, 80 % after 300 (cited:
big_vision's configs/vit_s16_i1k.py and the abstract of the paper). Not measured
here.

The model has average pooling, sine-cosine position embeddings, no dropout and
no label smoothing. It is trained with RandAugment and mixup.
"""

from ml_collections import ConfigDict

from configs import pretrain


def get_config(
    dataset: str = 'imagenet2012', epochs: int = 90, head: str = 'mlp',
    resolution: int = 224, batch_size: int = 1024,
) -> ConfigDict:
  """Returns the training config.

  Args:
    dataset: 'imagenet2012'; others use a warm-up of 5 % of the steps.
    epochs: 90, 150 or 300 in the paper.
    head: 'mlp', with a tanh layer before the classifier as in the published
      config, or 'linear', which is as good according to the paper.
    resolution: image size in pixels.
    batch_size: global batch size.
  """
  if head not in ('mlp', 'linear'):
    raise ValueError(f"head is {head!r}, but must be 'mlp' or 'linear'.")
  config = pretrain.get_config(
      model='S/16', dataset=dataset, epochs=epochs, resolution=resolution,
      batch_size=batch_size)
  config.update({
      'model': {
          'pooling': 'average', 'position': 'sincos', 'dropout': 0.0,
          'representation_layer': head == 'mlp'},
      'data': {
          'mixup': 0.2,
          'train_ops': [
              *pretrain.CROP_AND_FLIP,
              {'op': 'randaugment', 'num_layers': 2, 'magnitude': 10,
               'ranges': 'published'}]},
      'optimizer': {
          # Weight decay of 1e-4 in big_vision (vit_jax/optim/optimizers.py).
          'learning_rate': 1e-3, 'weight_decay': 0.1, 'clip_norm': 1.0,
          'momentum_dtype': 'bfloat16', 'schedule': {'name': 'cosine'}},
  })
  if pretrain.without_version(dataset) == 'imagenet2012':
    pretrain.hold_out_minival(config)
  return config
