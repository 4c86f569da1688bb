"""The picture of a sweep: what each setting gave, and the best's final runs."""

from collections.abc import Mapping, Sequence
import json
from typing import Any

from etils import epath

from vit_jax.analysis import plots

# Beyond this ratio of neighbours' extremes a linear axis crowds the small ones.
LOG_SCALE_RATIO = 8
# Metrics that are shares, by how their names begin.
SHARES = ('accuracy', 'precision', 'mean_average_precision',
          'calibration_error')
Rows = Sequence[Mapping[str, Any]]


def sweep(result: Mapping[str, Any], path: epath.PathLike) -> None:
  """Draws the metric against the swept field, a line for each other setting.

  The field with the most values is along the axis. Its values are spread as
  numbers, logarithmically where they span decades, or else in a row. The final
  runs stand at the best setting: mean and standard deviation of each evaluator
  that has the metric.

  Args:
    result: as `sweep.json` holds it: `plan` with `grid` and `metric`, rows
      `grid` with `values` and `value` (None where a run diverged), `best`, and
      `final` with `statistics`, or None.
    path: picture to write; the suffix says the format (.png, .pdf, .svg).
  """
  from matplotlib import figure

  fields = result['plan']['grid']
  along = max(fields, key=lambda field: len(fields[field]))
  values = fields[along]
  numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool)
                for v in values)
  places = {json.dumps(v): v if numeric else i for i, v in enumerate(values)}
  metric = result['plan']['metric']
  kind = metric.rsplit('/', 1)[-1]
  percent = kind.startswith(SHARES) or kind.endswith('_shot')
  scale = 100 if percent else 1

  fig = figure.Figure(figsize=(6.4, 4.4), dpi=150, layout='constrained')
  axes = fig.subplots()
  if numeric and min(values) > 0 and (
      max(values) / min(values) >= LOG_SCALE_RATIO):
    axes.set_xscale('log')
  lines = _lines(result['grid'], along)
  for i, (label, rows) in enumerate(lines.items()):
    points = sorted((places[json.dumps(row['values'][along])],
                     scale * row['value'])
                    for row in rows if row['value'] is not None)
    axes.plot(*zip(*points) if points else ([], []), 'o-',
              color=plots.COLOURS[i % len(plots.COLOURS)], markersize=6,
              label=plots.plain(f'{metric}{label}'), linewidth=1.6)
  # What has no value has a place all the same: at the foot.
  diverged = sorted({places[json.dumps(row['values'][along])]
                     for row in result['grid'] if row['value'] is None})
  if diverged:
    axes.plot(diverged, [0.04] * len(diverged), 'x', color='#555555',
              markersize=8, transform=axes.get_xaxis_transform(),
              label='diverged')
  best = result['best']
  place = places[json.dumps(best['values'][along])]
  axes.plot([place], [scale * best['value']], 'o', markersize=13,
            markerfacecolor='none', markeredgecolor='#000000', label='chosen')
  _draw_final(axes, result, place, scale=scale, first_colour=len(lines))
  # The values themselves are the ticks: nothing lies between them.
  axes.set_xticks(list(places.values()),
                  [plots.plain(str(v)) for v in values], minor=False)
  axes.xaxis.set_minor_locator(_no_ticks())
  axes.margins(x=0.12, y=0.15)
  axes.set_xlabel(plots.plain(along))
  axes.set_ylabel(plots.plain(kind) + (' (%)' if percent else ''))
  axes.grid(True, color='#E5E5E5', linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  fig.legend(loc='outside lower center', frameon=False, fontsize=9,
             ncols=2)
  plots.save(fig, path)


def _lines(rows: Rows, along: str) -> dict[str, list[Mapping[str, Any]]]:
  """Groups rows by their other fields, in words: ' (mixup=0.2)'."""
  lines: dict[str, list[Mapping[str, Any]]] = {}
  for row in rows:
    others = ', '.join(f'{field.split(".")[-1]}={value}'
                       for field, value in row['values'].items()
                       if field != along)
    lines.setdefault(f' ({others})' if others else '', []).append(row)
  return lines


def _draw_final(
    axes: Any, result: Mapping[str, Any], place: float, *, scale: float,
    first_colour: int,
) -> None:
  if result['final'] is None:
    return
  kind = result['plan']['metric'].rsplit('/', 1)[-1]
  seeds = len(result['final']['runs'])
  drawn = [(name, values) for name, values in
           result['final']['statistics'].items()
           if name.endswith(f'/{kind}') and not name.startswith('train/')]
  for i, (name, values) in enumerate(drawn):
    axes.errorbar(
        [place], [scale * values['mean']],
        yerr=None if values['std'] is None else [scale * values['std']],
        fmt=plots.MARKERS[1 + i % (len(plots.MARKERS) - 1)], capsize=5,
        color=plots.COLOURS[(first_colour + i) % len(plots.COLOURS)],
        markersize=7,
        label=plots.plain(f'{name}, final (mean ± std of {seeds})'), zorder=4)


def _no_ticks() -> Any:
  from matplotlib import ticker
  return ticker.NullLocator()
