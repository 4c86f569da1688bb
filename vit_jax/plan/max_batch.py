"""The largest batch of a device: the right half of the paper's Figure 12.

    guess ─▶ compile ─▶ fits? ─▶ the next power of two that may ─▶ ...

Powers of two. Each answer is two compilations: the batch fits, and twice as
many images do not. What is in between is foreseen from the bytes that the
compiler says, also where it refuses, so that few others are needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import humanize
import jax

from vit_jax import types
from vit_jax.experiment import load_config
from vit_jax.plan import building
from vit_jax.plan import measure as measure_lib

# arXiv 2010.11929, figure 12: its models and its sizes of images.
MODELS = ('R50x1', 'R50x2', 'R152x4', 'B/32', 'B/16', 'L/32', 'L/16', 'H/14')
RESOLUTIONS = (64, 128, 224, 384, 512)
FIRST_GUESS = 256
MOST = 2**20  # Images of a device, where nothing ends the search.


@dataclasses.dataclass(frozen=True)
class Cell:
  """One model at one size of images.

  Attributes:
    model: the variant.
    resolution: that was asked for, height and width in pixels.
    used_resolution: the nearest that divides into the model's patches.
    batch: images of a device, the largest power of two that fits; 0 if not
      even one does.
    total_bytes: of a device, with that batch; None for no image.
    too_large: the smallest batch that was seen not to fit; None if all did.
    too_large_bytes: what the compiler says that it needs, which may be less
      than all.
    capacity_bytes: what there is.
    fsdp: devices that split the parameters, as the config or its preset says.
    compilations: that it took.
    compile_secs: all of them on this machine.
  """
  model: str
  resolution: int
  used_resolution: int
  batch: int
  total_bytes: int | None
  too_large: int | None
  too_large_bytes: int | None
  capacity_bytes: int | None
  fsdp: int
  compilations: int
  compile_secs: float


def table(
    specification: str, devices: Sequence[jax.Device], *,
    overrides: Sequence[str] = (), models: Sequence[str] = MODELS,
    resolutions: Sequence[int] = RESOLUTIONS,
    measure: Callable[..., measure_lib.Measured] = measure_lib.measure,
) -> Iterator[Cell]:
  """Yields the cells, each as soon as it is known.

  Args:
    specification: a config file whose arguments `model` and `resolution` say
      what their names do, as those of configs/pretrain.py.
    devices: of the mesh.
    overrides: of the config, as `config.load` takes them.
    models: variants.
    resolutions: heights and widths in pixels.
    measure: compiles a step.

  Raises:
    ValueError: for a config that takes no such arguments, has stages, or
      whatever else is wrong with one.
  """
  for model in models:
    guess, before = FIRST_GUESS, 0
    for resolution in resolutions:
      if before:  # Tokens and feature maps grow with the area.
        guess = round(guess * (before / resolution)**2)
      cell = _cell(
          specification, model, resolution, devices, overrides=overrides,
          guess=guess, measure=measure)
      yield cell
      guess, before = max(1, cell.batch), resolution


def largest(
    measure: Callable[[int], measure_lib.Measured], *, guess: int,
) -> dict[str, Any]:
  """Finds the largest power of two that fits.

  Args:
    measure: compiles the step of so many images of a device.
    guess: where to begin.

  Returns:
    The fields of a `Cell` that come of it.

  Raises:
    ValueError: if the memory of the devices is not known.
  """
  fitting: tuple[int, measure_lib.Measured] | None = None
  refused: tuple[int, measure_lib.Measured] | None = None
  batch, compilations, secs = _power_of_two(guess), 0, 0.0
  while True:
    found = measure(batch)
    compilations, secs = compilations + 1, secs + found.compile_secs
    if found.fits is None:
      raise ValueError(
          f'The memory of {found.device_kind!r} is not known, and so not what '
          'fits it. Name devices by --topology, such as v3-8.')
    if found.fits:
      fitting = batch, found
    else:
      refused = batch, found
    low = fitting[0] if fitting else 0
    high = refused[0] if refused else 2 * MOST
    if high <= max(1, 2 * low):
      break
    foreseen = _power_of_two(_foreseen(batch, found))
    batch = min(max(foreseen, 2 * low, 1), high // 2)
  return {
      'batch': low,
      'total_bytes': fitting[1].memory.total_bytes if fitting else None,
      'too_large': refused[0] if refused else None,
      'too_large_bytes': refused[1].memory.total_bytes if refused else None,
      'capacity_bytes': found.memory.capacity_bytes,
      'fsdp': found.mesh[types.FSDP],
      'compilations': compilations, 'compile_secs': secs}


def _foreseen(batch: int, found: measure_lib.Measured) -> float:
  """Returns how many images would fit if each took what it takes now."""
  memory = found.memory
  assert memory.capacity_bytes is not None, 'or it would not be known to fit'
  held = memory.params_bytes + memory.optimizer_bytes
  if held >= memory.capacity_bytes:
    return 0
  # What a refusal says may leave out what is held.
  each = (memory.total_bytes if found.refusal else
          memory.total_bytes - held) / batch
  return (memory.capacity_bytes - held) / max(each, 1)


def _power_of_two(number: float) -> int:
  """Returns the largest that is not above a number, and at least 1."""
  return 2**(max(1, int(number)).bit_length() - 1)


def _cell(
    specification: str, model: str, resolution: int,
    devices: Sequence[jax.Device], *, overrides: Sequence[str], guess: int,
    measure: Callable[..., measure_lib.Measured],
) -> Cell:
  used = _dividing(model, resolution)
  separator = ',' if ':' in specification else ':'
  stages = load_config.load(
      f'{specification}{separator}model={model},resolution={used}', overrides)
  if list(stages) != ['']:
    raise ValueError(
        f'The largest batch is sought of a config without stages, but '
        f'{specification} has {", ".join(stages)}.')
  config = dataclasses.replace(stages[''], accumulation=1, evals={})

  def measure_at(batch: int) -> measure_lib.Measured:
    experiment, _ = building.build(dataclasses.replace(
        config, batch_size=batch * len(devices)), devices)
    return measure(experiment)

  return Cell(model=model, resolution=resolution, used_resolution=used,
              **largest(measure_at, guess=guess))


def _dividing(model: str, resolution: int) -> int:
  """Returns the size nearest to one that a model's patches divide."""
  patch = model.rpartition('/')[2]
  if not patch.isdigit() or '+' in model:
    return resolution
  return max(1, round(resolution / int(patch))) * int(patch)


def render(cells: Sequence[Cell], *, device_kind: str, unit: str) -> str:
  """Returns the table as text: a row for each model.

  Args:
    cells: all of them.
    device_kind: as JAX calls it.
    unit: what a device is: 'core', 'chip'.
  """
  resolutions = sorted({cell.resolution for cell in cells})
  by_place = {(cell.model, cell.resolution): cell for cell in cells}
  width = max(len(cell.model) for cell in cells)
  lines = [
      f'Largest power of two of images that a {unit} ({device_kind}) trains '
      'on at once:', '',
      f'{"":{width}}' + ''.join(f'{r:>8}' for r in resolutions)]
  for model in dict.fromkeys(cell.model for cell in cells):
    row = (by_place.get((model, r)) for r in resolutions)
    lines.append(f'{model:{width}}' + ''.join(
        f'{f"{cell.batch:,}" if cell else "-":>8}' for cell in row))
  lines += ['', 'Only powers of two are tried: each fits, and twice as many '
            'images do not (both', 'compiled); a number between may fit too.']
  split = {cell.model: cell.fsdp for cell in cells if cell.fsdp > 1}
  if split:
    lines.append(
        'Parameters and their optimizer split over several devices: '
        + ', '.join(f'{model} over {n}' for model, n in split.items())
        + ' (none: --config.mesh.preset=data).')
  other = {(cell.model, cell.resolution): cell.used_resolution
           for cell in cells if cell.used_resolution != cell.resolution}
  for model in dict.fromkeys(model for model, _ in other):
    lines.append(f'{model} at ' + ', '.join(
        f'{used} for {asked}' for (name, asked), used in other.items()
        if name == model) + ', which its patches divide.')
  return '\n'.join(lines)


def line(cell: Cell) -> str:
  """Returns a cell as a line: how far the search is."""
  def gib(size: int | None) -> str:
    return '?' if size is None else humanize.intcomma(size / 2**30, 1)

  fits = (f'{cell.batch:,} fit ({gib(cell.total_bytes)} of '
          f'{gib(cell.capacity_bytes)} GiB)' if cell.batch else 'none fits')
  refused = (f', {cell.too_large:,} do not ({gib(cell.too_large_bytes)})'
             if cell.too_large else '')
  return (f'{cell.model} at {cell.used_resolution}: {fits}{refused} | '
          f'{cell.compilations} compilations, {cell.compile_secs:,.0f} s')


def figures(cells: Sequence[Cell]) -> list[Mapping[str, Any]]:
  """Returns the cells as plain data, for a file."""
  return [dataclasses.asdict(cell) for cell in cells]
