"""The run of a workdir in Weights & Biases."""

from collections.abc import Mapping
import hashlib
import os
from typing import Any

from etils import epath

from vit_jax import atomic_files


def check() -> Any:
  """Returns the module; raises an ImportError if it is not installed."""
  try:
    import wandb
  except ImportError as error:
    raise ImportError(
        'log.wandb needs wandb: pip install wandb, then wandb login.'
    ) from error
  return wandb


def start(workdir: epath.Path, config: Mapping[str, Any]) -> Any:
  """Starts or resumes the run of a workdir; it has `log` and `finish`."""
  path = os.fspath(workdir)
  return check().init(
      project='vit_jax', name=workdir.name, config=dict(config),
      id=hashlib.sha256(path.encode()).hexdigest()[:16], resume='allow',
      dir=None if atomic_files.is_remote(workdir) else path)
