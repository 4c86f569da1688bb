"""Runs the small experiments of docs/paper.md, and plots their results.

    make paper                 # everything that needs no data
    make paper FIGURE=8        # one row of EXPERIMENTS
    make paper FIGURE=8,9      # several
    make paper DATA=$HOME/tensorflow_datasets    # also those on photographs

Prints how long the unfinished runs will take, then runs commands of main.py. An
interrupted command resumes exactly; finished runs are not repeated. Plots and
tables of mean and range over seeds go to runs/paper/NAME.png and NAME.md.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

import numpy as np

from vit_jax import console
from vit_jax.experiment import config_file
from vit_jax.extras import plots
from vit_jax.run import log_rows

# Datasets with at least 25 images in each class, and all.
LARGER = ('flowers5', 'trash6', 'textures10', 'cifar10')
SMALL = (*LARGER, 'blood5')
CAMVID = ('sky+building+pole+road+pavement+tree+sign+fence+car+pedestrian+'
          'bicyclist')
# Arguments of configs/segmentation.py and of main.py.
HEADS = {'linear': 'widths=,epochs=8,learning_rate=0.003',
         'decoder': 'widths=64,epochs=12,learning_rate=0.002'}
BACKBONES = {'photos': '', 'random': ' --config.init.new=[".*"]'}
MAIN = pathlib.Path(__file__).parents[1] / 'main.py'
FLOPS, PETAFLOPS = 'training GFLOP', 'training PFLOP'
UNITS = {FLOPS: 1e9, PETAFLOPS: 1e15}


@dataclasses.dataclass(frozen=True)
class Experiment:
  """A figure or table."""
  # Measured on one or two cores shared with other work: figure 4 on photographs
  # with one seed, figure 5 and transfer estimated.
  minutes: float
  # Arguments of main.py. With {data}, it needs DATA: docs/paper.md.
  commands: tuple[str, ...]
  # Metric and x label by file name. x is the middle part of a run's name
  # (SERIES,X,SEED), or the training FLOPs.
  pictures: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
  # Results of others by series and training PFLOP, to compare with. An
  # experiment that has them is not of the paper: it only runs if it is named.
  published: dict[str, dict[float, list[float]]] = dataclasses.field(
      default_factory=dict)


def _stages(minutes, name, **pictures):
  return Experiment(minutes, (
      f'train --config=configs/paper/{name}.py --workdir={{runs}}/{name}',),
                    pictures)


def _photographs(minutes, name, **pictures):
  return Experiment(minutes, (
      f'train --config=configs/paper/{name}.py:dataset=tiny_imagenet_40 '
      '--config.data.data_dir={data} '
      f'--workdir={{runs}}/{name}_photographs',), pictures)


def _transfer(datasets, runs, **arguments):
  settings = ','.join(f'{name}={value}' for name, value in arguments.items())
  return (f'sweep --config=configs/transfer.py:datasets={"+".join(datasets)},'
          f'{settings} --config.data.data_dir={{data}} '
          f'--config.init.checkpoint=photos --workdir={{runs}}/{runs}')


RATE, IMAGES, ACCURACY = 'learning rate', 'pre-training images', 'test/accuracy'
MINUTES = 'nominal minutes of one CPU core'
SHOTS = 'digits/5_shot'
EMBEDDINGS, TARGET = 'where position embeddings are added', 'target'
HEAD = 'head on the frozen backbone'
# Series and values of x, in order, where x is not a number.
CATEGORIES = {
    EMBEDDINGS: (('none', 'learned', '2d', 'relative'),
                 ('stem', 'layers', 'shared')),
    TARGET: (('0.5', '0.15'),
             ('mean_color', 'downsampled', 'patch', 'from scratch')),
    HEAD: (tuple(BACKBONES), tuple(HEADS))}
EXPERIMENTS = {
    '4': _stages(45, 'figure4', figure4=(SHOTS, IMAGES),
                 figure3=('digits/accuracy', IMAGES)),
    '5': _stages(60, 'figure5', figure5=(SHOTS, FLOPS)),
    'table2': Experiment(6, tuple(
        f'sweep --config=configs/paper/table2.py:family={family},'
        f'runs={{runs}}/figure4 --workdir={{runs}}/table2/{family}'
        for family in ('ViT', 'hybrid', 'ResNet'))),
    'table7': _stages(13, 'table7', table7=(SHOTS, RATE)),
    '8': _stages(14, 'figure8', figure8=(ACCURACY, FLOPS)),
    '9': _stages(8, 'figure9', figure9=(ACCURACY, RATE)),
    '13': _stages(6, 'figure13', figure13=(ACCURACY, FLOPS)),
    'table8': Experiment(5, (
        'train --config=configs/position_ablation.py:seeds=3 '
        '--workdir={runs}/table8',), {'table8': (ACCURACY, EMBEDDINGS)}),
    'section4.6': Experiment(45, tuple(
        'train --config=configs/masked_patch_small.py:dataset=digits,'
        f'target={target},corrupted={rate} --config.seed={seed} '
        f'--workdir={{runs}}/masked/{rate},{target},{seed}'
        for seed in range(3)
        for target in ('mean_color', 'downsampled', 'patch')
        for rate in (0.5, 0.15)), {'masked': (ACCURACY, TARGET)}),
    '4-photographs': _photographs(
        370, 'figure4',
        figure4_cifar10=('cifar10/5_shot', IMAGES),
        figure4_flowers5=('flowers5/5_shot', IMAGES),
        figure3_cifar10=('cifar10/accuracy', IMAGES),
        figure3_flowers5=('flowers5/accuracy', IMAGES)),
    '5-photographs': _photographs(
        400, 'figure5',
        figure5_cifar10=('cifar10/5_shot', FLOPS),
        figure5_flowers5=('flowers5/5_shot', FLOPS)),
    'transfer': Experiment(120, (
        _transfer(SMALL, 'transfer/frozen', methods='frozen'),
        _transfer(SMALL, 'transfer/frozen_scratch', methods='frozen',
                  scratch='true'),
        _transfer(LARGER, 'transfer/25', images=25,
                  methods='fine-tuned'),
        _transfer(LARGER, 'transfer/25_scratch', images=25,
                  methods='fine-tuned', scratch='true'))),
    'camvid': Experiment(40, tuple(
        f'train --config=configs/segmentation.py:source={{data}}/camvid,'
        f'classes={CAMVID},train=decoder,{settings} --config.seed={seed} '
        f'--config.init.checkpoint=photos{weights} '
        f'--workdir={{runs}}/camvid/{backbone},{head},{seed}'
        for seed in range(3) for backbone, weights in BACKBONES.items()
        for head, settings in HEADS.items()),
                         {'camvid': ('test/mean_iou', HEAD)}),
    'frontier': Experiment(690, (
        'train --config=configs/frontier.py --config.data.data_dir={data} '
        '--workdir={runs}/frontier',), {
            'frontier': (ACCURACY, PETAFLOPS),
            'frontier_minutes': (ACCURACY, MINUTES)}, published={
                'CCT, published': {2.0: [89.17], 2.8: [91.45], 85.: [96.53]},
                'ViT-Lite, published': {12.3: [90.94], 14.3: [91.38]}}),
}
# Other names of experiments, and those that need the runs of others.
ALIASES = {'3': ['4'], 'table2': ['4', 'table2']}


def needs_data(experiment):
  """Whether an experiment needs datasets that are not built in."""
  return any('{data}' in command for command in experiment.commands)


def finished(command):
  """Returns whether each run of a command is finished, by its folder."""
  words = command.split()
  values = dict(w.removeprefix('--').split('=', 1) for w in words[1:])
  folder = pathlib.Path(values['workdir'])
  config = config_file.read(f'{MAIN.parent}/{values["config"]}')
  if words[0] == 'sweep':
    path = folder / 'sweep.json'
    done = json.loads(path.read_text()) if path.exists() else {}
    return {folder / name: name in done.get('tasks', ())
            for name in config['sweep'].get('tasks', ())} or {
                folder: bool(done.get('final'))}
  return {folder / stage: (folder / stage / 'summary.json').exists()
          for stage in config.get('stages') or ('',)}


def unfinished(command):
  """Returns the fraction of the runs of a command that are not finished."""
  done = list(finished(command).values())
  return done.count(False) / len(done)


def read(folder, metric, xlabel):
  """Returns values by series and x; the points of `base` join each series."""
  found = {}
  for path in sorted(folder.glob('*,*/**/summary.json')):
    name, *stage, _ = path.relative_to(folder).parts
    series, point, _ = name.split(',')
    series = _series(series)
    summary = json.loads(path.read_text())
    if 'stages' in summary or stage == ['pretrain']:
      continue
    metrics = log_rows.chosen_metrics(summary)
    if metric in metrics:
      x = (summary['flops'] / UNITS[xlabel] if xlabel in UNITS
           else float(point) if xlabel not in CATEGORIES
           else 'from scratch' if stage == ['scratch_10'] else point)
      found.setdefault(series, {}).setdefault(x, []).append(
          100 * metrics[metric])
  base = found.pop('base', {})
  names, _ = CATEGORIES.get(xlabel, (found, ()))
  return {series: found[series] | base for series in names if series in found}


def _series(name):
  """Returns 'ViT' for the fine-tuning 'ViT on digits'."""
  return name.partition(' on ')[0]


def plot(series, path, *, names, xlabel, ylabel, title='', unjoined=()):
  """Plots the mean at each x, with a bar for the range over seeds.

  The position of a series in `names` determines its colour; lines join the
  points of those that are not in `unjoined`.
  """
  from matplotlib import ticker
  fig = plots.new_figure(6.4, 4.4)
  axes = fig.subplots()
  _, ticks = CATEGORIES.get(xlabel, ((), ()))
  for label, points in series.items():
    i = names.index(label)
    x, values = zip(*sorted((ticks.index(x) if ticks else x, values)
                            for x, values in points.items()))
    mean = np.array([np.mean(v) for v in values])
    axes.errorbar(
        x, mean, capsize=4, linewidth=1.6, markersize=6,
        yerr=[mean - [min(v) for v in values], [max(v) for v in values] - mean],
        fmt=plots.MARKERS[i % len(plots.MARKERS)] + '-' * (
            not ticks and label not in unjoined),
        color=plots.COLOURS[i % len(plots.COLOURS)], label=label)
  every_x = sorted({x for points in series.values() for x in points})
  if ticks:
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlim(-0.5, len(ticks) - 0.5)
  elif every_x[0] > 0 and every_x[-1] / every_x[0] >= 8:
    axes.set_xscale('log')
    decades = every_x[-1] / every_x[0] > 1000
    axes.xaxis.set_major_locator(
        ticker.LogLocator(subs=(1,) if decades else (1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda x, position: _number(x))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
  if len(every_x) <= 6 and not ticks:
    axes.set_xticks(every_x, [_number(x) for x in every_x], minor=False)
    axes.minorticks_off()
  axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
  plots.style(axes)
  fig.legend(loc='outside lower center', frameon=False, fontsize=10, ncols=4)
  plots.save(fig, path)


def _number(x):
  return f'{x:,.0f}' if x >= 1000 else f'{x:.4g}'


def draw(name, runs):
  """Writes plots and tables of an experiment; returns the paths of the plots.

  Without finished runs, there are none. While runs are missing, their number is
  the title, and NAME.partial.png does not replace NAME.png.
  """
  paths = []
  done = {}
  for command in EXPERIMENTS[name].commands:
    done |= finished(command.format(runs=runs, data=''))
  count = sum(done.values())
  names = sorted({_series(path.name.partition(',')[0]) for path in done})
  folder = os.path.commonpath([  # Of the runs.
      command.rpartition('--workdir=')[2]
      for command in EXPERIMENTS[name].commands])
  for picture, (metric, xlabel) in EXPERIMENTS[name].pictures.items():
    series = read(pathlib.Path(folder.format(runs=runs)), metric, xlabel)
    if not series:
      continue
    ylabel = ('mean IoU (%)' if metric.endswith('mean_iou') else
              '5-shot ' * metric.endswith('shot') + 'accuracy (%)')
    published = EXPERIMENTS[name].published if xlabel == PETAFLOPS else {}
    series |= published
    path = pathlib.Path(runs) / (
        picture + '.partial' * (count < len(done)) + '.png')
    plot(series, path, xlabel=xlabel, ylabel=ylabel, unjoined=published,
         names=list(dict.fromkeys([
             *(CATEGORIES[xlabel][0] if xlabel in CATEGORIES else names),
             *series])),  # Also those of an earlier config.
         title=f'{count} of {len(done)} runs' * (count < len(done)))
    rows = (_matrix(series, *CATEGORIES[xlabel]) if xlabel in CATEGORIES else
            _list(series, xlabel, ylabel))
    rows.insert(1, ['---'] * len(rows[0]))
    path.with_suffix('.md').write_text(
        ''.join(f'| {" | ".join(row)} |\n' for row in rows))
    paths.append(path)
  return paths


def _list(series, xlabel, ylabel):
  return [['', xlabel, f'{ylabel}, mean', 'range', 'runs'], *(
      [label, _number(x), f'{np.mean(values):.1f}',
       _range(values), f'{len(values)}']
      for label, points in series.items()
      for x, values in sorted(points.items()))]


def _matrix(series, rows, columns):
  return [['', *columns], *(
      [row, *(f'{np.mean(values):.1f} ({_range(values)})'
              if (values := series.get(row, {}).get(column)) else '–'
              for column in columns)] for row in rows)]


def _range(values):
  return f'{min(values):.1f} – {max(values):.1f}'


def run(words, env):
  """Runs a command; returns its exit status."""
  process = subprocess.Popen(words, env=env)
  while True:
    try:
      return process.wait()
    except KeyboardInterrupt:  # The command gets it, too, and saves its state.
      pass


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument('--figures', default='', help=', '.join(EXPERIMENTS))
  parser.add_argument('--runs', default='runs/paper')
  parser.add_argument('--data', default='', help=(
      'folder of the TFDS datasets of photographs: docs/paper.md'))
  args = parser.parse_args()
  names = list(filter(None, args.figures.split(','))) or [
      name for name, experiment in EXPERIMENTS.items()
      if not experiment.published and (args.data or not needs_data(experiment))]
  if unknown := set(names) - set(EXPERIMENTS) - set(ALIASES):
    parser.error(f'unknown: {", ".join(sorted(unknown))}; known: '
                 + ', '.join(EXPERIMENTS))
  names = list(dict.fromkeys(
      part for name in names for part in ALIASES.get(name, [name])))
  if not args.data and (missing := [
      name for name in names if needs_data(EXPERIMENTS[name])]):
    parser.error(
        f'{", ".join(missing)}: set DATA=FOLDER (--data) to the folder of the '
        'TFDS datasets of photographs (docs/paper.md).')
  todo = {name: {command: unfinished(command) for command in (
      c.format(runs=args.runs, data=args.data)
      for c in EXPERIMENTS[name].commands)}
          for name in names}
  left = {name: EXPERIMENTS[name].minutes * sum(shares.values()) / len(shares)
          for name, shares in todo.items()}
  console.table(
      f'About {sum(left.values()):.0f} minutes on two cores',
      ('figure', 'minutes', 'left'),
      [(name, EXPERIMENTS[name].minutes, f'{left[name]:.0f}')
       for name in names])
  # Seeds share compiled programs.
  env = {'JAX_COMPILATION_CACHE_DIR': f'{args.runs}/compiled', **os.environ}
  for name in names:
    for command, share in todo[name].items():
      if share:
        print(f'\npython main.py {command}', flush=True)
        status = run([sys.executable, MAIN, *command.split()], env)
        if status:
          sys.exit(status)
    for path in draw(name, args.runs):
      print(f'{path}, .md', flush=True)


if __name__ == '__main__':
  main()
