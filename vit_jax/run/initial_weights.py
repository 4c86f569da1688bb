"""Finds the checkpoint or weights that a new run starts from."""

from etils import epath

from vit_jax.inference import load
from vit_jax.run import restore


def find(
    origin: epath.PathLike, which: str, num_heads: int | None,
) -> restore.Source:
  """Finds a source of initial parameters.

  Args:
    origin: a workdir, a checkpoint, or weights of another codebase.
    which: 'latest' or 'best' checkpoint of a workdir.
    num_heads: of the run's model, which some weights do not declare; None for
      a ResNet.
  """
  overrides = {} if num_heads is None else {'num_heads': num_heads}
  return load.find(origin, which=which, **overrides)
