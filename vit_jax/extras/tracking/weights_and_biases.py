"""The run of a workdir in Weights & Biases."""

from collections.abc import Mapping
import hashlib
import os
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax.exceptions import UserError


class Run:
  """Starts or resumes the run of a workdir."""

  def __init__(
      self, workdir: epath.Path, config: Mapping[str, Any], *, first_step: int):
    del first_step  # Rows of earlier steps are ignored there.
    path = os.fspath(workdir)
    self._run = self.check().init(
        project='vit_jax', name=workdir.name, config=dict(config),
        id=hashlib.sha256(path.encode()).hexdigest()[:16], resume='allow',
        dir=None if atomic_files.is_remote(workdir) else path)

  @staticmethod
  def check() -> Any:
    """Returns the module; raises a UserError if it is not installed."""
    try:
      import wandb
    except ImportError as error:
      raise UserError(
          'log.wandb needs wandb: pip install wandb, then wandb login.'
      ) from error
    return wandb

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Logs a row."""
    self._run.log(values, step=int(step))

  def write_images(self, step: int, name: str, images: jax.Array) -> None:
    """Ignores images."""

  def flush(self) -> None:
    """Does nothing: rows are sent in the background."""

  def close(self) -> None:
    """Ends the run."""
    self._run.finish()
