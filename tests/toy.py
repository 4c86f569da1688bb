"""A tiny model on digits: its config, its experiment and its metrics."""

import gc
import shutil
import socket
from unittest import mock
import weakref

CONFIG = {
    'total': {'steps': 2}, 'batch_size': 8,
    'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
              'patch': 4},
    'data': {'source': 'digits', 'resolution': 8},
    'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                  'schedule': {'name': 'constant'}},
}


def config(**changes):
  """Returns the config; a section keeps the values that are not given."""
  result = {**CONFIG, **changes}
  for section in ('model', 'data', 'optimizer'):
    result[section] = {**CONFIG[section], **result[section]}
  return result


def build(*, devices=1, **changes):
  """Returns the experiment of the config on some of the devices."""
  # Not before pytest's import hook.
  import jax

  from vit_jax.experiment import build as build_lib
  from vit_jax.experiment import config as config_lib
  return build_lib.build(
      config_lib.resolve(config(**changes)), devices=jax.devices()[:devices])


def save(experiment, workdir, *, params=None, step=0, **options):
  """Saves a checkpoint of a run that has not trained."""
  from vit_jax.checkpoints import manager
  from vit_jax.experiment import config as config_lib
  state = experiment.init_state(random=True)
  state = state.replace(step=state.step + step, params=params or state.params)
  with manager.Checkpoints(workdir, experiment.config.checkpoint) as files:
    files.save(state, **{
        'config': config_lib.to_plain(experiment.config), 'progress': {},
        'labels': experiment.dataset.class_names or ()} | options)


def take_steps(experiment, state, *, last, first=0):
  """Returns the state after steps first ... last - 1, and their losses."""
  losses, batches = [], experiment.batches(start_step=first)
  for _ in range(first, last):
    state, loss = experiment.train_step(state, next(batches))
    losses.append(float(loss))
  batches.close()
  return state, losses


class Live:
  """Counts the objects that something still refers to."""

  def __init__(self):
    self._refs = []

  def count_with(self, added):
    """Adds an object, and returns how many of all added ones are live."""
    self._refs.append(weakref.ref(added))
    gc.collect()
    return sum(ref() is not None for ref in self._refs)


def faked(experiment, **properties):
  """Returns an experiment whose properties are replaced."""
  import dataclasses
  return type('Faked', (type(experiment),), properties)(**{
      field.name: getattr(experiment, field.name)
      for field in dataclasses.fields(experiment)})


def fake_step(compiled):
  """Returns a replacement of a jitted step that is compiled already."""
  return mock.Mock(**{'lower.return_value.compile.return_value': compiled})


def free_port():
  """Returns a port of this machine that no process listens on."""
  with socket.create_server(('localhost', 0)) as server:
    return server.getsockname()[1]


def copy_at(workdir, target, *, step):
  """Copies a run as if it had been killed after the checkpoint of a step."""
  shutil.copytree(workdir, target)
  for path in (target / 'checkpoints' / 'latest').iterdir():
    if int(path.name) > step:
      shutil.rmtree(path)
  (target / 'summary.json').unlink()
  return target


def rows(workdir):
  """Returns the metrics of a run, without those of its speed."""
  from vit_jax.run import writer as writer_lib
  measured = ('images_per_sec', 'wait_share', 'device_hours', 'core_hours',
              'host_memory_bytes')
  return [{name: value for name, value in row.items()
           if name.split('/')[-1] not in measured}
          for row in writer_lib.read_rows(workdir)]


def write(path, **changes):
  """Writes a config file and returns its path."""
  path.write_text(
      'from ml_collections import ConfigDict\n\ndef get_config():\n'
      f'  return ConfigDict({config(**changes)!r})\n')
  return str(path)
