"""Mixed labels fit the loss of the experiment, and need images to mix."""

import jax
import numpy as np
import pytest

from tests import pictures
from tests import toy


@pytest.mark.parametrize(('loss', 'label_sum'), [
    ('softmax', 1), ('sigmoid', 3)])
def test_only_a_softmax_loss_mixes_distributions(tmp_path, loss, label_sum):
  rows = ['path,label']
  for i in range(8):
    pictures.save(tmp_path / f'{i}.png', pictures.picture(i, side=8))
    rows.append(f'{i}.png,a|b|{"cdef"[i % 4]}')
  (tmp_path / 'train.csv').write_text('\n'.join(rows))
  built = toy.build(
      data={'source': f'{tmp_path}/train.csv', 'mixup': 1.0, 'target': 'multi',
            'table': {'separator': '|'}}, objective={
          'name': 'supervised', 'loss': loss}, evals={})
  batches = built.batches(start_step=0)
  label = built.prepare(next(batches), jax.random.key(0))['label']
  batches.close()
  assert ((label > 0) & (label < 1)).any()
  np.testing.assert_allclose(label.sum(-1), label_sum, rtol=1e-5)


@pytest.mark.parametrize(('data', 'batch_size', 'noted'), [
    ({'mixup': 0.2}, 1, 'data.mixup'), ({'cutmix': 1.0}, 1, 'data.cutmix'),
    ({'mixup': 0.2}, 2, ''), ({}, 1, '')])
def test_mixing_a_batch_of_one_image_is_noted(data, batch_size, noted, capsys):
  toy.build(data=data, batch_size=batch_size)
  printed = ' '.join(capsys.readouterr().out.split())
  assert ('nothing is mixed' in printed) == bool(noted)
  assert noted in printed
