"""Weights & Biases gets the rows of metrics."""

import sys
import types

from etils import epath
import pytest

from vit_jax.extras.tracking import weights_and_biases


def test_weights_and_biases_gets_the_same_rows(tmp_path, monkeypatch):
  calls = []

  def init(**options):
    calls.append(options)
    return types.SimpleNamespace(
        log=lambda values, step: calls.append((step, values)),
        finish=lambda: calls.append('finish'))

  monkeypatch.setitem(sys.modules, 'wandb', types.SimpleNamespace(init=init))
  for _ in range(2):  # The second start continues the same run.
    run = weights_and_biases.Run(
        epath.Path(tmp_path), {'seed': 1}, first_step=0)
    run.write(10, {'train/loss': 2.5})
    run.close()
  assert calls[0] == calls[3] and calls[0]['config'] == {'seed': 1}
  assert calls[1:3] == [(10, {'train/loss': 2.5}), 'finish']
  monkeypatch.setitem(sys.modules, 'wandb', None)
  with pytest.raises(ImportError, match='pip install wandb'):
    weights_and_biases.Run.check()
