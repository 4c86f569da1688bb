"""The largest batch that fits is one that fits, and of which twice does not."""

import dataclasses

import jax
import pytest

from vit_jax.analysis import memory_plot
from vit_jax.plan import max_batch

CONFIG = """
from ml_collections import ConfigDict

def get_config(model: str = 'B/16', resolution: int = 224):
  return ConfigDict({
      'total': {'steps': 4}, 'batch_size': 8, 'accumulation': 2,
      'model': {'variant': model},
      'data': {'source': 'digits', 'resolution': resolution},
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1,
                    'schedule': {'name': 'constant'}},
  })
"""


@pytest.mark.parametrize('guess', [1, 3, 64, 100_000])
@pytest.mark.parametrize(('each', 'fixed', 'largest'), [
    (0.1, 1.5, 128),  # (15.5 - 1.5) / 0.1 = 140.
    (0.9, 3.0, 8), (14.0, 1.5, 1), (15.0, 1.5, 0), (1e-3, 1.0, 8192)])
def test_it_fits_and_twice_as_many_images_do_not(
    measured, guess, each, fixed, largest):
  asked = []

  def measure(batch):
    asked.append(batch)
    return measured(fixed + each * batch, held=1.0)

  found = max_batch.largest(measure, guess=guess)
  assert found['batch'] == largest
  assert found['too_large'] == max(1, 2 * largest)
  assert {largest, 2 * largest} - {0} <= set(asked) or largest == 0
  assert found['compilations'] == len(asked) <= 5
  assert len(set(asked)) == len(asked)
  assert found['compile_secs'] == 2.0 * len(asked)


def test_memory_that_grows_in_leaps_is_searched_to_the_end(measured):
  found = max_batch.largest(
      lambda batch: measured(20.0 if batch > 32 else 1.2), guess=256)
  assert (found['batch'], found['too_large']) == (32, 64)


def test_devices_of_unknown_memory_are_an_error(measured):
  with pytest.raises(ValueError, match="memory of 'fake' is not known"):
    max_batch.largest(lambda _: measured(1.0, None), guess=8)


@pytest.fixture(scope='module')
def cells(measured, tmp_path_factory):
  path = tmp_path_factory.mktemp('config') / 'toy.py'
  path.write_text(CONFIG)

  def measure(experiment):
    """Half a GiB for 2**10 pixels of an image on a device."""
    assert experiment.config.accumulation == 1
    height, width = experiment.config.data.size
    share = experiment.config.batch_size / experiment.mesh.size
    return measured(1.0 + share * height * width / 2**11, held=1.0)

  return list(max_batch.table(
      str(path), jax.devices()[:2], models=('Ti/16', 'Ti/14', 'R26x1'),
      resolutions=(32, 64), measure=measure,
      overrides=['model.dtype=bfloat16']))


def test_a_table_has_every_model_at_every_size(cells):
  batches = {(c.model, c.resolution): c.batch for c in cells}
  # 14.5 GiB by half a GiB and by two of them; Ti/14 takes 28 and 70 pixels.
  assert batches == {
      ('Ti/16', 32): 16, ('Ti/16', 64): 4, ('Ti/14', 32): 32, ('Ti/14', 64): 4,
      ('R26x1', 32): 16, ('R26x1', 64): 4}
  text = max_batch.render(cells, device_kind='TPU v3', unit='core')
  assert 'a core (TPU v3)' in text
  assert 'Only powers of two are tried' in text
  assert [line.split() for line in text.splitlines() if 'R26x1' in line] == [
      ['R26x1', '16', '4']]
  assert 'Ti/14 at 28 for 32, 70 for 64' in text
  split = [dataclasses.replace(cell, fsdp=8) for cell in cells[:1]]
  assert 'Ti/16 over 8' in max_batch.render(
      split, device_kind='TPU v3', unit='core')
  assert max_batch.line(cells[0]).startswith(
      'Ti/16 at 32: 16 fit (9.0 of 15.5 GiB), 32 do not (16.0)')


def test_the_picture_is_drawn_also_of_a_model_that_never_fits(cells, tmp_path):
  cells = [*cells, dataclasses.replace(cells[0], model='G/14', batch=0)]
  path = tmp_path / 'batch.png'
  memory_plot.largest_batches(
      max_batch.figures(cells), path, title='Largest', unit='core')
  assert path.read_bytes().startswith(b'\x89PNG')
