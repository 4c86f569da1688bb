"""Largest batch per device, as in the right half of the paper's Figure 12.

Only powers of two are tried. The result is proven by two compilations: the
batch fits, and twice the batch does not. The memory figures of each
compilation predict the next candidate.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import jax

from vit_jax import console
from vit_jax import types
from vit_jax.experiment import load_config
from vit_jax.plan import build_without_data
from vit_jax.plan import step_cost

# arXiv 2010.11929, figure 12: models and resolutions.
MODELS = ('R50x1', 'R50x2', 'R152x4', 'B/32', 'B/16', 'L/32', 'L/16', 'H/14')
RESOLUTIONS = (64, 128, 224, 384, 512)
FIRST_GUESS = 256
MAX_IMAGES = 2**20  # Per device.


@dataclasses.dataclass(frozen=True)
class Search:
  """Result of a search for the largest batch.

  Attributes:
    batch: largest power of two of images per device that fits, or 0.
    total_bytes: memory per device with that batch; None if 0.
    too_large: smallest batch known not to fit; None if all did.
    too_large_bytes: its memory according to the compiler, possibly incomplete.
    capacity_bytes: available memory.
    fsdp: number of devices that parameters are sharded over.
    compilations: number of compilations.
    compile_secs: time of all compilations.
  """
  batch: int
  total_bytes: int | None
  too_large: int | None
  too_large_bytes: int | None
  capacity_bytes: int | None
  fsdp: int
  compilations: int
  compile_secs: float


@dataclasses.dataclass(frozen=True)
class Cell:
  """Largest batch of one model at one resolution.

  Attributes:
    model: variant.
    resolution: requested height and width in pixels.
    used_resolution: nearest multiple of the patch size.
    found: result of the search.
  """
  model: str
  resolution: int
  used_resolution: int
  found: Search


def table(
    specification: str, devices: Sequence[jax.Device], *,
    overrides: Sequence[str] = (), models: Sequence[str] = MODELS,
    resolutions: Sequence[int] = RESOLUTIONS,
    compile_step: Callable[..., step_cost.StepCost] = step_cost.compile_step,
) -> Iterator[Cell]:
  """Yields the cells of the table as soon as they are known.

  Args:
    specification: config file that takes the arguments `model` and
      `resolution`, as configs/pretrain.py does.
    devices: devices of the mesh.
    overrides: config overrides.
    models: variants.
    resolutions: image sizes in pixels.
    compile_step: compiles a step.

  Raises:
    ValueError: if the config is invalid or has stages.
  """
  for model in models:
    guess, previous = FIRST_GUESS, 0
    for resolution in resolutions:
      if previous:  # Activations grow with the image area.
        guess = round(guess * (previous / resolution)**2)
      used = _multiple_of_patch(model, resolution)
      cost_of = _cost_by_batch(
          specification, model, used, devices, overrides, compile_step)
      found = largest(cost_of, guess=guess)
      yield Cell(model, resolution, used, found)
      guess, previous = max(1, found.batch), resolution


def largest(
    cost_of: Callable[[int], step_cost.StepCost], *, guess: int,
) -> Search:
  """Finds the largest power of two that fits.

  Args:
    cost_of: compiles the step of a number of images per device.
    guess: first candidate.

  Raises:
    ValueError: if the device memory is unknown.
  """
  fitting: step_cost.StepCost | None = None
  refused: step_cost.StepCost | None = None
  low, high = 0, 2 * MAX_IMAGES
  batch, compilations, secs = _power_of_two(guess), 0, 0.0
  while high > max(1, 2 * low):
    cost = cost_of(batch)
    compilations, secs = compilations + 1, secs + cost.compile_secs
    if cost.fits is None:
      raise ValueError(
          f'The memory of {cost.device_kind!r} is unknown. Choose other '
          'devices with --topology, such as v3-8.')
    if cost.fits:
      fitting, low = cost, batch
    else:
      refused, high = cost, batch
    predicted = _power_of_two(_predict(batch, cost))
    batch = min(max(predicted, 2 * low, 1), high // 2)
  return Search(
      batch=low, too_large=high if refused else None,
      total_bytes=fitting.memory.total_bytes if fitting else None,
      too_large_bytes=refused.memory.total_bytes if refused else None,
      capacity_bytes=cost.memory.capacity_bytes, fsdp=cost.mesh[types.FSDP],
      compilations=compilations, compile_secs=secs)


def _predict(batch: int, cost: step_cost.StepCost) -> float:
  """Returns the batch that fits if memory per image is constant."""
  memory = cost.memory
  assert memory.capacity_bytes is not None, 'checked by `largest`'
  state = memory.params_bytes + memory.optimizer_bytes
  if state >= memory.capacity_bytes:
    return 0
  # Compiler errors may not include the state.
  per_image = (memory.total_bytes - (0 if cost.compile_error else state)
               ) / batch
  return (memory.capacity_bytes - state) / max(per_image, 1)


def _power_of_two(number: float) -> int:
  """Returns the largest power of two up to a number, and at least 1."""
  return 2**(max(1, int(number)).bit_length() - 1)


def _cost_by_batch(
    specification: str, model: str, resolution: int,
    devices: Sequence[jax.Device], overrides: Sequence[str],
    compile_step: Callable[..., step_cost.StepCost],
) -> Callable[[int], step_cost.StepCost]:
  separator = ',' if ':' in specification else ':'
  stages = load_config.load(
      f'{specification}{separator}model={model},resolution={resolution}',
      overrides)
  if list(stages) != ['']:
    raise ValueError(
        f'--max-batch needs a config without stages, but {specification} has '
        f'{", ".join(stages)}.')
  config = dataclasses.replace(stages[''], accumulation=1, evals={})

  def cost_of(batch: int) -> step_cost.StepCost:
    experiment, _ = build_without_data.build(dataclasses.replace(
        config, batch_size=batch * len(devices)), devices)
    return compile_step(experiment)

  return cost_of


def _multiple_of_patch(model: str, resolution: int) -> int:
  patch = model.rpartition('/')[2]
  if not patch.isdigit() or '+' in model:
    return resolution
  return max(1, round(resolution / int(patch))) * int(patch)


def show(cells: Sequence[Cell], *, device_kind: str, unit: str) -> None:
  """Prints the table with a row per model and a column per resolution."""
  resolutions = sorted({cell.resolution for cell in cells})
  batches = {(cell.model, cell.resolution): cell.found.batch for cell in cells}
  console.table(
      f'Largest batch per {unit} ({device_kind})',
      ('model', *map(str, resolutions)), [
          (model, *(batches.get((model, r)) for r in resolutions))
          for model in dict.fromkeys(cell.model for cell in cells)])
  print('Only powers of two are tried: each batch fits, and twice the batch '
        'does not.')
  sharded = {cell.model: cell.found.fsdp for cell in cells
             if cell.found.fsdp > 1}
  if sharded:
    print('Parameters are sharded: ' + ', '.join(
        f'{model} over {n} devices' for model, n in sharded.items())
        + ' (--config.mesh.preset=data replicates them).')
  changed = [f'{cell.model} at {cell.used_resolution} instead of '
             f'{cell.resolution}' for cell in cells
             if cell.used_resolution != cell.resolution]
  if changed:
    print(f'Resolutions are multiples of the patch size: {", ".join(changed)}.')


def line(cell: Cell) -> str:
  """Returns a cell as a progress line."""
  found = cell.found
  fits = 'no batch fits' if not found.batch else (
      f'{found.batch:,} fit ({console.format_bytes(found.total_bytes or 0)} of '
      f'{console.format_bytes(found.capacity_bytes or 0)})')
  refused = '' if not found.too_large else (
      f', {found.too_large:,} do not '
      f'({console.format_bytes(found.too_large_bytes or 0)})')
  return (f'{cell.model} at {cell.used_resolution}: {fits}{refused} | '
          f'{found.compilations} compilations, {found.compile_secs:,.0f} s')


def figures(cells: Sequence[Cell]) -> list[Mapping[str, Any]]:
  """Returns the cells as plain data for JSON."""
  return [{'model': cell.model, 'resolution': cell.resolution,
           'used_resolution': cell.used_resolution,
           **dataclasses.asdict(cell.found)} for cell in cells]
