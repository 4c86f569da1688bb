"""A toy model whose images are its logits."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest


def loss(logits, labels):
  if labels.ndim == 2:
    return optax.sigmoid_binary_cross_entropy(
        logits, labels.astype(jnp.float32)).sum(-1)
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


@pytest.fixture(scope='session')
def toy():
  """Returns a function that builds an evaluator over arrays.

  Images [examples, width] are logits and representation at once, times
  `params['scale']`. Each split is cut into batches, the last one padded with
  `garbage`. `stored` replaces the labels of the dataset.
  """
  from tests import in_memory  # Not before pytest has its import hook.
  from vit_jax import data
  from vit_jax import evals

  def split(images, labels, *, size=4, garbage=np.nan, stored=None,
            num_classes=None, class_names=None, targets=(), **facts):
    images = np.asarray(images, np.float32)
    labels = np.asarray(labels)
    name = 'segmentation' if labels.ndim == 3 else 'label'

    def batches():
      for start in range(0, len(images), size):
        rows = slice(start, start + size)
        short = size - len(images[rows])
        yield {
            'image': jnp.asarray(np.concatenate([images[rows], np.full(
                (short, *images.shape[1:]), garbage, np.float32)])),
            name: jnp.asarray(np.concatenate([labels[rows], np.zeros(
                (short, *labels.shape[1:]), labels.dtype)])),
            'mask': jnp.asarray([1.0] * (size - short) + [0.0] * short)}

    dataset = data.Dataset(
        name='toy', split='test', class_names=class_names, targets=targets,
        source=in_memory.Arrays(*[labels if stored is None else stored] * 2),
        multi_label=labels.ndim == 2 and not targets,
        num_classes=num_classes or images.shape[-1])
    return evals.Split(
        dataset=dataset, batches=batches, image=lambda i: images[i],
        original=lambda i: (images[i], f'{i}.png'), **facts)

  def predict(params, batch):
    values = batch['image'].reshape(len(batch['image']), -1) * params['scale']
    return {'logits': values, 'representation': values}

  def build(section, splits, *, objective=None, num_classes=None,
            activation='softmax', loss=loss, targets=(), predict=predict,
            class_names=None, grid=(1, 1), model=None):
    if not isinstance(splits, dict):
      splits = {'': splits}
    context = evals.Context(
        where='evals.test', predict=predict,
        features=lambda params, batch, layer, _: predict(params, batch)[layer],
        objective=objective or (lambda *_, **__: None), loss=loss,
        activation=activation, grid=grid, model=model, train_data=data.Dataset(
            name='toy', split='train', source=in_memory.Numbers(0),
            num_classes=num_classes or splits[''].dataset.num_classes,
            class_names=class_names, targets=targets),
        open_split=lambda split, source, **options: splits[split])
    evaluate = evals.parse({'test': section})['test'].build(context)
    return lambda params, on_batch=lambda: None: evaluate(params, on_batch)

  build.split = split
  build.params = {'scale': jnp.float32(1.0)}
  return build
