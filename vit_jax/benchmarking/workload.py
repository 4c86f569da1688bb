"""What a speed is measured of: a model, trained as nothing in particular."""

from collections.abc import Sequence

from vit_jax.experiment import config as config_lib

TRAIN_OPS = [{'op': 'inception_crop'}, {'op': 'flip'}]


def config(
    variant: str, *, resolution: int, batch_size: int, dtype: str, source: str,
    num_workers: int = 0, overrides: Sequence[str] = (),
) -> config_lib.Config:
  """Returns the config of a training: softmax loss, Adam, no dropout.

  Args:
    variant: of the model, 'B/16'.
    resolution: of square images.
    batch_size: images in a step.
    dtype: that the model computes in.
    source: of images, as `data.source`; need not be there, if it is known.
    num_workers: processes that read them.
    overrides: 'model.remat=attention' and the like.

  Raises:
    ValueError: for whatever is misspelt or does not go together.
  """
  return config_lib.resolve_with({
      'total': {'steps': 10_000},
      'batch_size': batch_size,
      'model': {'variant': variant, 'dtype': dtype},
      'data': {'source': source, 'resolution': resolution,
               'train_ops': TRAIN_OPS, 'num_workers': num_workers},
      'optimizer': {'name': 'adam', 'learning_rate': 1e-4,
                    'schedule': {'name': 'constant'}},
  }, overrides)
