"""Largest batch per device, as in the right half of the paper's Figure 12.

Only powers of two are tried. Two compilations confirm the result: the batch
fits, and twice the batch does not. The memory use of each compilation predicts
the next candidate.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import shlex
import sys
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax import console
from vit_jax.exceptions import UserError
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import load_config
from vit_jax.extras import plots
from vit_jax.extras.plan import report
from vit_jax.extras.plan import step_cost
from vit_jax.extras.plan import workload

FIRST_GUESS = 256
MAX_IMAGES = 2**20  # Per device.


def run(
    specification: str, devices: Sequence[jax.Device], *,
    overrides: Sequence[str] = (), models: Sequence[str], resolutions: str,
    json: str | None = None, picture: str = '',
) -> dict[str, Any]:
  """Prints, draws and returns the largest batches; see `table`.

  Args:
    specification: a config file.
    devices: local devices, or those of a slice.
    overrides: settings, such as 'batch_size=64'.
    models: names of models.
    resolutions: numbers of pixels, separated by commas.
    json: file for the results, which is written after every cell.
    picture: file for the figure.
  """
  try:
    sizes = [int(text) for text in resolutions.split(',')]
  except ValueError:
    raise UserError(
        '--resolutions must be comma-separated numbers of pixels, such as '
        f'224,384, but got {resolutions!r}.') from None
  kind = devices[0].device_kind
  cells: list[dict[str, Any]] = []
  found = {'jax': jax.__version__, 'command': shlex.join(sys.argv),
           'device_kind': kind, 'cells': cells}
  for cell in table(specification, devices, overrides=overrides,
                    models=models, resolutions=sizes):
    cells.append(cell)
    print(line(cell), flush=True)
    if json:  # A table can take hours.
      atomic_files.write_json(json, found)
  unit = report.unit(kind)
  show(cells, device_kind=kind, unit=unit)
  if picture:
    plot(cells, picture, unit=unit, title=f'Largest batch per {unit} ({kind})')
    print(f'wrote {picture}')
  return found


def table(
    specification: str, devices: Sequence[jax.Device], *,
    overrides: Sequence[str] = (), models: Sequence[str],
    resolutions: Sequence[int],
) -> Iterator[dict[str, Any]]:
  """Yields a cell per model and resolution as soon as it is known.

  `specification` is a config file that takes the arguments `model` and
  `resolution`, as configs/pretrain.py does. A cell has `model`, `resolution`,
  `used_resolution` (the nearest multiple of the patch size) and the result of
  `largest`.

  Raises:
    UserError: if the config is invalid or has stages.
  """
  for model in models:
    guess, previous = FIRST_GUESS, 0
    for resolution in resolutions:
      if previous:  # Activations grow with the image area.
        guess = round(guess * (previous / resolution)**2)
      used = _multiple_of_patch(model, resolution)
      cost_of = _cost_by_batch(specification, model, used, devices, overrides)
      found = largest(cost_of, guess=guess)
      yield {'model': model, 'resolution': resolution, 'used_resolution': used,
             **found}
      guess, previous = max(1, found['batch']), resolution


def largest(
    cost_of: Callable[[int], step_cost.StepCost], *, guess: int,
) -> dict[str, Any]:
  """Finds the largest power of two that fits.

  Args:
    cost_of: compiles the step for a number of images per device.
    guess: first candidate.

  Returns:
    `batch`, the largest power of two of images per device that fits, or 0;
    `total_bytes`, the memory per device with that batch, or None;
    `capacity_bytes`, the available memory; `compile_secs`, the time of all
    compilations.

  Raises:
    UserError: if the device memory is unknown.
  """
  total_bytes, secs = None, 0.0
  low, high, batch = 0, 2 * MAX_IMAGES, _power_of_two(guess)
  while high > max(1, 2 * low):
    cost = cost_of(batch)
    secs += cost.compile_secs
    if cost.fits is None:
      raise UserError(
          f'The memory of {cost.device_kind!r} is unknown. Choose other '
          'devices with --topology, such as v3-8.')
    if cost.fits:
      total_bytes, low = cost.memory.total_bytes, batch
    else:
      high = batch
    predicted = _power_of_two(_predict(batch, cost))
    batch = min(max(predicted, 2 * low, 1), high // 2)
  return {'batch': low, 'total_bytes': total_bytes,
          'capacity_bytes': cost.memory.capacity_bytes, 'compile_secs': secs}


def _predict(batch: int, cost: step_cost.StepCost) -> float:
  """Returns the batch that fits if memory per image is constant."""
  memory = cost.memory
  free = (memory.capacity_bytes or 0) - memory.state_bytes
  # Compiler errors may not include the state.
  activations = memory.total_bytes - memory.state_bytes * cost.is_compiled
  return max(0, free) * batch / max(activations, batch)


def _power_of_two(number: float) -> int:
  """Returns the largest power of two up to a number, and at least 1."""
  return 2**(max(1, int(number)).bit_length() - 1)


def _cost_by_batch(
    specification: str, model: str, resolution: int,
    devices: Sequence[jax.Device], overrides: Sequence[str],
) -> Callable[[int], step_cost.StepCost]:
  separator = ',' if ':' in specification else ':'
  stages = load_config.load(
      f'{specification}{separator}model={model},resolution={resolution}',
      overrides)
  if list(stages) != ['']:
    raise UserError(
        f'--max-batch needs a config without stages, but {specification} has '
        f'{", ".join(stages)}.')
  config = dataclasses.replace(
      workload.without_evals(stages['']), accumulation=1)

  def cost_of(batch: int) -> step_cost.StepCost:
    return step_cost.compile_step(build_lib.build(
        dataclasses.replace(config, batch_size=batch * len(devices)), devices,
        data_optional=True))

  return cost_of


def _multiple_of_patch(model: str, resolution: int) -> int:
  patch = model.rpartition('/')[2]
  if not patch.isdigit() or '+' in model:
    return resolution
  return max(1, round(resolution / int(patch))) * int(patch)


def show(
    cells: Sequence[Mapping[str, Any]], *, device_kind: str, unit: str,
) -> None:
  """Prints the table with a row per model and a column per resolution."""
  resolutions = sorted({cell['resolution'] for cell in cells})
  batches = {(cell['model'], cell['resolution']): cell['batch']
             for cell in cells}
  console.table(
      f'Largest batch per {unit} ({device_kind})',
      ('model', *map(str, resolutions)), [
          (model, *(batches.get((model, r)) for r in resolutions))
          for model in dict.fromkeys(cell['model'] for cell in cells)])
  print('Only powers of two are tried: each batch fits, and twice the batch '
        'does not.')
  changed = [
      f'{cell["model"]} at {cell["used_resolution"]} instead of '
      f'{cell["resolution"]}' for cell in cells
      if cell['used_resolution'] != cell['resolution']]
  if changed:
    print(f'Resolutions are multiples of the patch size: {", ".join(changed)}.')


def line(cell: Mapping[str, Any]) -> str:
  """Returns a cell as a progress line."""
  capacity = console.format_bytes(cell['capacity_bytes'])
  fits = f'no batch fits {capacity}' if not cell['batch'] else (
      f'{cell["batch"]:,} fit ({console.format_bytes(cell["total_bytes"])} of '
      f'{capacity})')
  return (f'{cell["model"]} at {cell["used_resolution"]}: {fits} | compiled in '
          f'{cell["compile_secs"]:,.0f} s')


def plot(
    cells: Sequence[Mapping[str, Any]], path: epath.PathLike, *, title: str,
    unit: str,
) -> None:
  """Plots a line per model on logarithmic axes (ViT, figure 12, right).

  A line ends where not even one image fits. Each cell has `model`,
  `resolution` and `batch`; `unit` names a device.
  """
  from matplotlib import ticker
  fig = plots.new_figure(6.4, 4.6)
  axes = fig.subplots()
  colours = (*plots.COLOURS, '#888888')
  for i, model in enumerate(dict.fromkeys(cell['model'] for cell in cells)):
    points = sorted((cell['resolution'], cell['batch']) for cell in cells
                    if cell['model'] == model and cell['batch'])
    # Lines often coincide; markers of decreasing size stay visible.
    axes.loglog(
        *zip(*points) if points else ([], []), base=2,
        label=plots.drawable(model), color=colours[i % len(colours)],
        marker=plots.MARKERS[i % len(plots.MARKERS)], markersize=9 - 0.7 * i)
  axes.set_xticks(sorted({cell['resolution'] for cell in cells}))
  axes.xaxis.set_major_formatter('{x:g}')
  axes.xaxis.set_minor_locator(ticker.NullLocator())
  axes.yaxis.set_major_formatter('{x:,.7g}')
  axes.set(xlabel='height and width of the images (pixels)',
           ylabel=f'images per {unit}', title=plots.drawable(title))
  plots.style(axes)
  axes.legend(loc='upper left', bbox_to_anchor=(1, 1), frameon=False)
  plots.save(fig, path)
