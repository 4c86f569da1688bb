"""Pre-training of "How to train your ViT?" (AugReg, arXiv 2106.10270).

    python main.py --workdir=gs://bucket/s16 \
        --config=configs/augreg.py:model=S/16,dataset=imagenet21k,aug=light1 \
        --config.data.data_dir=gs://bucket/tfds

Hardware: as for configs/pretrain.py.
Expected top-1 accuracy in % after 300 epochs on imagenet21k and fine-tuning on
ImageNet at 384 pixels (cited: the table of recommended checkpoints of
github.com/google-research/vision_transformer; R50+L/32 uses regularize=true;
not measured here):

    L/16 85.59    B/16 85.49    S/16 83.73    Ti/16 78.22    R50+L/32 85.99
    B/32 83.59    S/32 79.58    R26+S/32 83.85    R+Ti/16 75.40
"""

from ml_collections import ConfigDict

from configs import pretrain

# (RandAugment layers, RandAugment magnitude, mixup) of big_vision's
# configs/vit_i21k.py. Magnitude 0 still changes images: see
# vit_jax/extras/augment/randaugment.py.
AUGMENTATIONS = {
    'none': (0, 0, 0.0),
    'light1': (2, 0, 0.0),
    'light2': (2, 10, 0.2),
    'medium1': (2, 15, 0.2),
    'medium2': (2, 15, 0.5),
    'strong1': (2, 20, 0.5),
    'strong2': (2, 20, 0.8),
}
# Default augmentation and weight decay on ImageNet-21k: those of the
# recommended checkpoints.
IMAGENET21K = {
    'L/16': ('strong1', 0.1), 'B/16': ('medium1', 0.1),
    'S/16': ('light1', 0.03), 'Ti/16': ('none', 0.03),
    'B/32': ('light1', 0.1), 'S/32': ('none', 0.1),
    'R50+L/32': ('medium1', 0.1), 'R26+S/32': ('light1', 0.1),
    'R+Ti/16': ('none', 0.03),
}
# The same on ImageNet: those of big_vision's configs/vit_i1k.py (from figure
# 4). Its weight decay of 1e-4 is 0.1 here (see vit_jax/optim/optimizers.py).
IMAGENET = {
    'L/16': ('medium2', 0.1), 'B/16': ('medium2', 0.1),
    'S/16': ('medium2', 0.1), 'Ti/16': ('light1', 0.1),
    'B/32': ('medium2', 0.1), 'S/32': ('medium1', 0.1),
}
OTHERS = ('medium1', 0.1)


def get_config(
    model: str = 'B/16', dataset: str = 'imagenet21k', aug: str = '',
    regularize: bool = False, weight_decay: float = 0.0, epochs: int = 300,
    loss: str = '', resolution: int = 224, batch_size: int = 4096,
) -> ConfigDict:
  """Returns the pre-training config.

  As in big_vision, ImageNet has a sigmoid loss, a representation layer, and its
  last 1 % of training images as `minival`. Other datasets use the values of
  ImageNet, except for these and with a warm-up of 5 % of the steps instead of
  10,000 steps.

  Args:
    model: model variant; the paper uses Ti/16, S/32, S/16, B/32, B/16, L/16,
      R+Ti/16, R26+S/32 and R50+L/32.
    dataset: 'imagenet2012', 'imagenet21k', or any other.
    aug: one of AUGMENTATIONS; '' selects the best for the model.
    regularize: whether to use dropout and stochastic depth of 0.1.
    weight_decay: 0.1 or 0.03 in the paper; 0 selects the best for the model.
    epochs: 300 in the paper, also 30 on imagenet21k.
    loss: 'softmax' or 'sigmoid'; '' uses 'sigmoid' on ImageNet and imagenet21k.
    resolution: image size in pixels.
    batch_size: global batch size.
  """
  name = pretrain.without_version(dataset)
  best_aug, best_decay = (
      IMAGENET21K if name == 'imagenet21k' else IMAGENET).get(model, OTHERS)
  aug = aug or best_aug
  if aug not in AUGMENTATIONS:
    raise ValueError(
        f'aug is {aug!r}, but must be one of {", ".join(AUGMENTATIONS)}.')
  layers, magnitude, mixup = AUGMENTATIONS[aug]
  rate = 0.1 if regularize else 0.0
  is_imagenet = name == 'imagenet2012'
  config = pretrain.get_config(
      model=model, dataset=dataset, epochs=epochs, resolution=resolution,
      batch_size=batch_size, loss=loss or 'sigmoid' * is_imagenet)
  config.update({
      'model': {
          # The published checkpoints have none, unlike the ViT paper.
          'representation_layer': is_imagenet,
          'dropout': rate, 'stochastic_depth': rate},
      'data': {'mixup': mixup},
      'optimizer': {
          'learning_rate': 1e-3, 'clip_norm': 1.0,
          'weight_decay': weight_decay or best_decay,
          'momentum_dtype': 'bfloat16', 'schedule': {'name': 'cosine'}},
  })
  if is_imagenet:
    pretrain.hold_out_minival(config)
  if layers:
    config.data.train_ops = [
        *pretrain.CROP_AND_FLIP,
        {'op': 'randaugment', 'num_layers': layers, 'magnitude': magnitude,
         'ranges': 'published'}]
  return config
