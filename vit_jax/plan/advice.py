"""What would make a step fit: settings, alone and together, each compiled.

    does not fit ─▶ each setting alone ─▶ none? ─▶ together, the cheapest first

Of the numbers of devices that may split the parameters, the fewest that fit are
sought. A setting that does not go with the config is left out, and that is
said. Nothing is foreseen: a row is what the compiler says of the step with
those settings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import math
import typing
from typing import Any

import humanize
import jax

from vit_jax import types
from vit_jax.checkpoints import manager
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.plan import building
from vit_jax.plan import measure as measure_lib
from vit_jax.plan import microbatches as microbatches_lib
from vit_jax.plan import report

Measure = Callable[[experiment_lib.Experiment], measure_lib.Measured]
# Of the numbers of parts of one batch, that are compiled.
MOST_PARTS_TRIED = 4


@dataclasses.dataclass(frozen=True)
class Setting:
  """A change of a config that saves memory.

  Attributes:
    overrides: as written after `--config.`.
    price: what is paid for it, in words.
  """
  overrides: tuple[str, ...]
  price: str


@dataclasses.dataclass(frozen=True)
class Row:
  """A config with some settings changed, compiled.

  Attributes:
    overrides: as written after `--config.`.
    price: what is paid for them, in words.
    fits: whether it fits.
    total_bytes: of a device; where the compiler refused it, what that said,
      which may be less than all.
    capacity_bytes: what there is.
    extra_flops: operations that are done again, as a share of those before.
  """
  overrides: tuple[str, ...]
  price: str
  fits: bool
  total_bytes: int
  capacity_bytes: int | None
  extra_flops: float


def suggest(
    config: config_lib.Config, devices: Sequence[jax.Device], *,
    measured: measure_lib.Measured, measure: Measure = measure_lib.measure,
    say: Callable[[str], None] = lambda line: None,
) -> list[Row]:
  """Tries the settings that may make a step fit.

  Args:
    config: of a step that does not fit.
    devices: that it does not fit.
    measured: that step, compiled.
    measure: compiles one.
    say: is told each row as it is known, for it takes a while.

  Returns:
    Each setting alone, then together, up to the first that fits.
  """
  # Evaluators need their own data, and are no part of the step; nor is what is
  # best by them.
  tried = _Tried(
      dataclasses.replace(
          config, evals={}, checkpoint=manager.CheckpointConfig()),
      devices, measured, measure, say)
  free, remat = _momentum(config), _remat(config)
  for setting in free:
    tried.settings(setting)
  split = tried.fewest(_splits(config, measured.mesh))
  free += [split] if split else []
  for setting in remat:
    tried.settings(setting)
  tried.parts()
  if not tried.any_fits:
    for together in _together(free, remat):
      if together.settings and tried.settings(*together.settings):
        break
      if together.parts and tried.parts(*together.settings):
        break
  return tried.rows


@dataclasses.dataclass(frozen=True)
class _Together:
  settings: tuple[Setting, ...]
  parts: bool


def _together(
    free: Sequence[Setting], remat: Sequence[Setting],
) -> Iterator[_Together]:
  """Yields what to try together, the cheapest first."""
  if free:  # One alone was tried; more parts were not.
    yield _Together(tuple(free) if len(free) > 1 else (), parts=False)
    yield _Together(tuple(free), parts=True)
  for setting in remat if free else ():
    yield _Together((*free, setting), parts=False)
  if remat:
    yield _Together((*free, remat[-1]), parts=True)


class _Tried:
  """What has been compiled so far."""

  def __init__(
      self, config: config_lib.Config, devices: Sequence[jax.Device],
      before: measure_lib.Measured, measure: Measure,
      say: Callable[[str], None]):
    self.rows: list[Row] = []
    self._config = config
    self._devices = devices
    self._before = before
    self._measure = measure
    self._say = say
    self._left_out: set[tuple[str, ...]] = set()

  @property
  def any_fits(self) -> bool:
    """Whether one of the rows fits."""
    return any(row.fits for row in self.rows)

  def settings(self, *settings: Setting) -> bool:
    """Tries some settings together; returns whether they fit."""
    row = self._row(settings)
    if row is None or row in self.rows:
      return False
    self._keep(row)
    return row.fits

  def fewest(self, settings: Sequence[Setting]) -> Setting | None:
    """Tries settings of which each saves more memory than the one before.

    Only one is kept as a row: the first that fits, or else the last that goes
    with the config, which is compiled first.

    Returns:
      That one; None if none goes with the config.
    """
    rest = list(settings)
    best: tuple[Setting, Row] | None = None
    while rest and best is None:
      setting = rest.pop()
      row = self._row([setting])
      best = (setting, row) if row else None
    if best is None:
      return None
    while best[1].fits and rest:
      middle = (len(rest) - 1) // 2
      row = self._row([rest[middle]])
      if row and row.fits:
        best, rest = (rest[middle], row), rest[:middle]
      else:
        rest = rest[middle + 1:]
    self._keep(best[1])
    return best[0]

  def parts(self, *settings: Setting) -> bool:
    """Tries more parts, beside some settings; returns whether some fit.

    Only the last is kept as a row: the fewest parts that fit, or the most that
    were tried.
    """
    overrides = tuple(o for s in settings for o in s.overrides)
    experiment = self._build(overrides)
    if experiment is None:
      return False
    choices = microbatches_lib.options(experiment)
    sizes = {self._config.parts: next(
        (row.total_bytes for row in self.rows if row.overrides == overrides),
        self._before.memory.total_bytes)}
    row: Row | None = None
    for _ in range(MOST_PARTS_TRIED):
      limit = self._before.memory.capacity_bytes
      parts = microbatches_lib.next_parts(
          choices, sizes, math.inf if limit is None else limit)
      if parts is None:
        break
      found = self._row((*settings, Setting(
          (f'accumulation={parts}',),
          'smaller matrix products; other dropout masks')))
      if found is None:
        break
      row, sizes[parts] = found, found.total_bytes
      if row.fits:
        break
    if row is None:
      return False
    self._keep(row)
    return row.fits

  def _keep(self, row: Row) -> None:
    self.rows.append(row)
    self._say(_line(row))

  def _row(self, settings: Sequence[Setting]) -> Row | None:
    """Compiles the config with settings; None if it does not go with them."""
    overrides = tuple(o for setting in settings for o in setting.overrides)
    experiment = self._build(overrides)
    if experiment is None:
      return None
    found = self._measure(experiment)
    return Row(
        overrides=overrides,
        price='; '.join(filter(None, (s.price for s in settings))),
        fits=bool(found.fits), total_bytes=found.memory.total_bytes,
        capacity_bytes=found.memory.capacity_bytes,
        extra_flops=found.flops / self._before.flops - 1)

  def _build(
      self, overrides: Sequence[str],
  ) -> experiment_lib.Experiment | None:
    try:
      config = config_lib.resolve_with(
          config_lib.to_plain(self._config), overrides)
      return building.build(config, self._devices)[0]
    except ValueError as error:
      if tuple(overrides) not in self._left_out:
        self._left_out.add(tuple(overrides))
        self._say(f'{"-":>7}  left out: {_flags(overrides)}  ({error})')
      return None


def _momentum(config: config_lib.Config) -> list[Setting]:
  """Returns what keeps the momentum in fewer bytes, if it is not so kept."""
  if config.optimizer.momentum_dtype == 'bfloat16':
    return []
  return [Setting(('optimizer.momentum_dtype=bfloat16',),
                  'the momentum in bfloat16 (arXiv:2106.04560, section 3.4)')]


def _splits(
    config: config_lib.Config, mesh: Mapping[str, int],
) -> list[Setting]:
  """Returns the numbers of devices that may split the parameters.

  Powers of two above today's that divide the replicas and what is split of a
  parameter, its width; the fewest first.

  Args:
    config: as it is.
    mesh: the number of devices along each axis.
  """
  model = config.model
  width = getattr(model, 'width', 0) or getattr(
      getattr(model, 'backbone', None), 'width', 0)
  replicas = mesh[types.DATA] * mesh[types.FSDP]
  settings = []
  fsdp = 2
  while math.gcd(replicas, width) % fsdp == 0:
    if fsdp > mesh[types.FSDP]:
      fixed = ((f'mesh.data={replicas // fsdp}',) if config.mesh.data != -1
               else ())
      settings.append(Setting(
          (*fixed, f'mesh.fsdp={fsdp}'),
          'parameters sent from device to device'))
    fsdp *= 2
  return settings


def _remat(config: config_lib.Config) -> list[Setting]:
  """Returns what more may be computed again, the least first."""
  levels = typing.get_args(
      typing.get_type_hints(type(config.model)).get('remat'))
  now = levels.index(config.model.remat)
  return [Setting((f'model.remat={level}',), '') for level in levels[now + 1:]]


def header(measured: measure_lib.Measured) -> str:
  """Returns what stands above the rows: by how much a step does not fit."""
  memory = measured.memory
  over = memory.total_bytes - (memory.capacity_bytes or 0)
  return (
      f'Does not fit: {_gib(memory.total_bytes)} GiB a '
      f'{report.unit(measured.device_kind)}, {_gib(over)} more than the '
      f'{_gib(memory.capacity_bytes or 0)}\nthat are there. With other '
      'settings, each compiled:\n\n'
      f'{"GiB":>7}  {"fits":4}  {"FLOPs":>6}  settings (what is paid)')


def footer(rows: Sequence[Row]) -> str:
  """Returns what stands below the rows: what to do."""
  fitting = [row for row in rows if row.fits]
  if not fitting:
    return ('None of these fits: use more devices, or a smaller batch '
            '(--config.batch_size).')
  return 'To train with one that fits, add its flags.'


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
  """Returns the rows as plain data, for a file."""
  return [dataclasses.asdict(row) for row in rows]


def _line(row: Row) -> str:
  paid = f'  ({row.price})' if row.price else ''
  return (f'{_gib(row.total_bytes):>7}  {"yes" if row.fits else "no":4}  '
          f'{row.extra_flops:+6.0%}  {_flags(row.overrides)}{paid}')


def _flags(overrides: Sequence[str]) -> str:
  return ' '.join(f'--config.{text}' for text in overrides)


def _gib(size: float) -> str:
  return humanize.intcomma(size / 2**30, 1)
