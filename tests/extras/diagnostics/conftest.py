"""The toy model of the trunk, and checkpoints of runs that were not trained."""

import pytest

from tests.evals.conftest import toy

__all__ = ['toy']


@pytest.fixture
def write(tmp_path):
  """Returns a function that writes a checkpoint, as a run does."""
  from tests import random_models  # Not before pytest has its import hook.
  from tests import toy
  from vit_jax.checkpoints import items
  from vit_jax.experiment import config as config_lib

  def run(names, metrics, *, loss='sigmoid', evals=(), which='latest', step=5,
          label_kind='multi', **progress):
    settings = {**toy.CONFIG['model'], 'num_classes': len(names)}
    plain = config_lib.to_plain(config_lib.resolve(toy.config(
        model=settings, objective={'name': 'supervised', 'loss': loss},
        data={'mean': 0.5, 'std': 0.5}, evals=dict(evals))))
    items.write(
        tmp_path / f'run/checkpoints/{which}/{step}',
        {'params': random_models.make(settings, side=8).params}, {
            'config': plain, 'labels': {'names': list(names)},
            'progress': {
                'evals': metrics, 'label_kind': label_kind,
                'evaluated': step, **progress}})
    return str(tmp_path / 'run')

  return run
