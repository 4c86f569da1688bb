"""Weak scaling of a training step over TPU slices, without a TPU.

    JAX_PLATFORMS=cpu python benchmarks/scaling.py --json=scaling.json

Runs `main.py plan` for each model, mesh and slice, with a fixed batch per
device, and prints what a device sends per step and the roofline bounds. Needs
the TPU compiler (requirements-plan.txt), but no TPU. `--json` keeps finished
plans: the same command continues after an interruption.

*Efficiency* is the time of a step without communication, on the smallest slice,
divided by the time with communication, if nothing overlaps. The first figure
assumes that collectives use all links of a device; the second, that each uses
one axis of the torus. The latency of collectives is not included.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from vit_jax import atomic_files
from vit_jax import console
from vit_jax.parallel import topology

ROOT = pathlib.Path(__file__).parents[1]


def plan(model, mesh, name, images):
  """Returns the figures of `main.py plan`.

  Raises:
    RuntimeError: if the plan fails or the step does not fit.
  """
  _, shape = topology.parse(name)
  devices = len(topology.devices(name))
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'plan.json'
    done = subprocess.run([
        sys.executable, os.fspath(ROOT / 'main.py'), 'plan',
        f'--config=configs/pretrain.py:model={model},dataset=jft,'
        f'batch_size={images * devices}', '--config.accumulation=1',
        f'--config.mesh.preset={mesh}', f'--topology={name}', f'--json={path}'],
                          cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
      raise RuntimeError(
          f'The plan of {model} on {name}, mesh {mesh}, failed: '
          f'{(done.stderr or done.stdout).strip()[-2000:]}')
    found = json.loads(path.read_text())
  stage, = found['stages']
  return {'model': model, 'preset': mesh, 'slice': name, 'images': images,
          'axes': len(shape.split('x')), 'jax': found['jax'],
          **{key: stage[key] for key in ('cost', 'estimate')}}


def secs(row, *, interconnect):
  """Returns the bound of a step without overlap.

  Args:
    row: a plan.
    interconnect: factor of the interconnect's time: 0 for a step without
      communication, 1 for all links, the number of axes for one of them.
  """
  return sum(
      bound['secs'] * (interconnect if name == 'interconnect' else 1)
      for name, bound in row['estimate']['bounds'].items())


def show(rows):
  """Prints the table."""
  cells = []
  for row in rows:
    alone = secs(next(other for other in rows if all(
        other[key] == row[key] for key in ('model', 'preset'))), interconnect=0)
    cost, kinds = row['cost'], row['cost']['collectives']
    efficiency = [alone / secs(row, interconnect=factor)
                  for factor in (1, row['axes'])]
    cells.append((
        row['model'], ' x '.join(f'{axis} {n}' for axis, n in (
            cost['mesh'].items()) if n > 1), row['slice'],
        ', '.join(f'{kind} {total["wire_bytes"] / 1e9:.2f}'
                  for kind, total in kinds.items()),
        *(1e3 * row['estimate']['bounds'].get(name, {'secs': 0})['secs']
          for name in ('compute', 'memory', 'interconnect')),
        ' – '.join(f'{100 * value:.0f} %' for value in efficiency)))
  console.table(
      f'Weak scaling, {rows[0]["images"]} images per device; bounds in ms', (
          'model', 'mesh', 'slice', 'sent, GB', 'compute', 'memory', 'links',
          'efficiency'), cells)


def main(argv):
  """Prints a row per model, mesh and slice."""
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--models', default='L/16,H/14,G/14')
  parser.add_argument('--meshes', default='data,auto',
                      help='presets of config.mesh')
  parser.add_argument('--slices', default='v5p-8,v5p-512,v5p-1024')
  parser.add_argument('--images', type=int, default=32, help='per device')
  parser.add_argument('--json', required=True)
  args = parser.parse_args(argv)
  path = pathlib.Path(args.json)
  known = json.loads(path.read_text()) if path.exists() else []
  rows = []
  for key in itertools.product(
      args.models.split(','), args.meshes.split(','), args.slices.split(','),
      [args.images]):
    found = [row for row in known if key == tuple(
        row[name] for name in ('model', 'preset', 'slice', 'images'))]
    if not found:
      found = [plan(*key)]
      known += found
      atomic_files.write_json(path, known)
      print(f'{key}: compiled in {found[0]["cost"]["compile_secs"]:.0f} s',
            flush=True)
    rows += found
  show(rows)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
