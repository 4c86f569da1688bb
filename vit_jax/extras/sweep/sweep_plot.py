"""Plots of a sweep: the metric of every setting or task."""

from collections.abc import Mapping
import json
from typing import Any

from etils import epath

from vit_jax import metrics as metrics_lib
from vit_jax.extras import plots


def sweep(
    result: Mapping[str, Any], path: epath.PathLike, *, percent: bool) -> None:
  """Plots the metric against the swept field, one line per other setting.

  The field with the most values is on the x axis, in the order of the config.

  Args:
    result: content of `sweep.json`: `plan` with `grid` and `metric`, rows
      `grid` with `values` and `value` (None for a diverged run), and `best`.
    path: file to write; the suffix determines the format (.png, .pdf, .svg).
    percent: whether the metric is a fraction.
  """
  fields = result['plan']['grid']
  field = max(fields, key=lambda name: len(fields[name]))
  values = fields[field]
  positions = {json.dumps(value): i for i, value in enumerate(values)}
  metric = result['plan']['metric'].rsplit('/', 1)[-1]
  scale = 100 if percent else 1
  fig = plots.new_figure(6.4, 4.4)
  axes = fig.subplots()
  _draw_grid(axes, result, field, positions, scale=scale)
  best = result['best']
  best_position = positions[json.dumps(best['values'][field])]
  axes.plot([best_position], [scale * best['value']], 'o', markersize=13,
            markerfacecolor='none', markeredgecolor='#000000',
            label=plots.drawable(f'chosen: {_describe(best["values"])}'))
  axes.set_xticks(
      range(len(values)), [plots.drawable(str(value)) for value in values])
  axes.margins(x=0.12, y=0.15)
  axes.set(xlabel=plots.drawable(field),
           ylabel=plots.drawable(metric) + (' (%)' if percent else ''))
  plots.style(axes)
  plots.legend(fig)
  plots.save(fig, path)


def cells(
    result: Mapping[str, Any], path: epath.PathLike, *,
    declared: Mapping[str, metrics_lib.Metric],
) -> None:
  """Plots the results of tasks: a panel for each, a line for each row.

  Args:
    result: content of `sweep.json`: `columns`, the label of the x axis, and
      `cells` with `panel`, `row`, `column`, `metric`, `mean` and `std`.
    path: file to write; the suffix determines the format (.png, .pdf, .svg).
    declared: metrics of the runs; see `metrics.find`.
  """
  panels, rows, columns = (
      list(dict.fromkeys(cell[key] for cell in result['cells']))
      for key in ('panel', 'row', 'column'))
  fig, all_axes = plots.new_panels(
      len(panels), columns=3, width=2.8, height=2.8)
  for panel, axes in zip(panels, all_axes):
    drawn = [cell for cell in result['cells'] if cell['panel'] == panel]
    for i, row in enumerate(rows):
      line = [cell for cell in drawn if cell['row'] == row]
      # Side by side, so that error bars do not hide each other.
      axes.errorbar(
          [columns.index(cell['column']) + 0.04 * i for cell in line],
          [cell['mean'] for cell in line],
          yerr=[cell['std'] or 0 for cell in line], capsize=3, markersize=5,
          marker=plots.MARKERS[i % len(plots.MARKERS)],
          color=plots.COLOURS[i % len(plots.COLOURS)], linewidth=1.6,
          label=plots.drawable(row))
    axes.set_xticks(range(len(columns)), map(plots.drawable, columns))
    axes.set_xlabel(plots.drawable(result['columns']))
    axes.set_title(plots.drawable(panel), fontsize=12, loc='left',
                   fontweight='bold')
    if all(metrics_lib.find(cell['metric'], declared).is_fraction
           for cell in drawn):
      plots.percent(axes.yaxis)
    plots.style(axes)
  plots.legend(fig, all_axes[-1].get_legend_handles_labels()[0])
  plots.save(fig, path)


def _draw_grid(
    axes: Any, result: Mapping[str, Any], field: str,
    positions: Mapping[str, float], *, scale: float,
) -> None:
  """Draws the runs of the grid."""
  # Points by the values of the other swept fields.
  lines: dict[str, list[tuple[float, float]]] = {}
  diverged = set()
  for row in result['grid']:
    others = _describe({name: value for name, value in row['values'].items()
                        if name != field})
    points = lines.setdefault(f' ({others})' if others else '', [])
    position = positions[json.dumps(row['values'][field])]
    if row['value'] is None:
      diverged.add(position)
    else:
      points.append((position, scale * row['value']))
  for i, (label, points) in enumerate(lines.items()):
    # Each line has its style, so that equal lines do not hide each other.
    axes.plot(*zip(*sorted(points)) if points else ([], []),
              linestyle=('-', '--', ':', '-.')[i % 4],
              marker=plots.MARKERS[i % len(plots.MARKERS)],
              color=plots.COLOURS[i % len(plots.COLOURS)], markersize=6,
              label=plots.drawable(result['plan']['metric'] + label),
              linewidth=1.6)
  if diverged:  # Crosses at the bottom edge.
    axes.plot(sorted(diverged), [0.04] * len(diverged), 'x', color='#555555',
              markersize=8, transform=axes.get_xaxis_transform(),
              label='diverged')


def _describe(values: Mapping[str, Any]) -> str:
  return ', '.join(f'{name.split(".")[-1]}={value}'
                   for name, value in values.items())
