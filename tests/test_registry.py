"""Names lead to what exists; modules are imported only if a user names them."""

import os
import sys

import pytest

from tests import leaves
from vit_jax import data
from vit_jax import evals
from vit_jax import objectives
from vit_jax import registry
from vit_jax.data.images import ops as ops_lib
from vit_jax.data.sources import open_source
from vit_jax.experiment import config_file
from vit_jax.models import factory

TABLES = ('COMMANDS', 'SECTIONS', 'MODELS', 'OBJECTIVES', 'OPTIMIZERS',
          'EVALUATORS', 'OPERATIONS', 'MIXERS', 'SOURCES', 'SIZES', 'FILES',
          'WEIGHT_FORMATS')
OWN = """
import dataclasses
from vit_jax import data, evals, objectives

@dataclasses.dataclass(frozen=True)
class Loss(objectives.ObjectiveConfig):
  gamma: float = 2.0

@dataclasses.dataclass(frozen=True)
class Metric(evals.EvaluatorConfig):
  pass

@dataclasses.dataclass(frozen=True)
class Op(data.Operation):
  size: int | None = None

def source(config: data.DataConfig) -> data.DatasetSplits:
  return data.DatasetSplits({}, num_classes=config.channels)

def other(config):
  raise AssertionError('This is no source.')
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
  """A module `own_names` in the current folder, which nobody has named."""
  (tmp_path / 'own_names.py').write_text(OWN)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(registry, '_allowed', set())
  monkeypatch.setattr(registry, '_folders', [])
  monkeypatch.setattr(sys, 'path', list(sys.path))
  yield
  sys.modules.pop('own_names', None)


TARGETS = [
    value for name, value in vars(registry).items()
    if name.isupper() and str(value).startswith('vit_jax.')]


@pytest.mark.parametrize('target', filter(leaves.has, [*TARGETS, *(
    target for table in TABLES for target in getattr(registry, table).values()
)]))
def test_every_name_leads_to_what_exists(target):
  assert registry.load(target) is not None


def test_names_of_ones_own_have_their_keys_and_build(own):
  registry.allow('own_names')
  loss = objectives.parse({'name': 'own_names:Loss', 'gamma': 1})
  assert (loss.name, loss.gamma) == ('own_names:Loss', 1.0)
  assert evals.parse({'x': {'name': 'own_names:Metric'}})['x'].every is None
  section = {'op': 'own_names:Op', 'size': 4}
  config = data.parse({'train_ops': [section], 'source': 'own_names:source'})
  ops = config.build_ops(train=True)
  assert ops_lib.to_sections(ops) == [section]
  assert open_source.open_splits(config).num_classes == config.channels


@pytest.mark.parametrize(('parse', 'section', 'message'), [
    (objectives.parse, {'name': 'own_names:Loss', 'gama': 1},
     "Unknown key objective.gama. Did you mean 'gamma'"),
    (objectives.parse, {'name': 'own_names:Loss', 'gamma': 'x'},
     'objective.gamma must be float'),
    (objectives.parse, {'name': 'own_names:Los'},
     "objective.name: own_names:Los: .*has no Los. Did you mean 'Loss'"),
    (objectives.parse, {'name': 'own_name:Loss'},
     'objective.name: own_name:Loss: there is no module own_name'),
    (objectives.parse, {'name': 'own_names:Metric'},
     'objective.name .*must be a class that extends .*ObjectiveConfig'),
    (evals.parse, {'x': {'name': 'own_names:Loss'}},
     'evals.x.name .*must be a class that extends .*EvaluatorConfig'),
    (data.parse, {'train_ops': [{'op': 'own_names:Loss'}]},
     r'train_ops\[0\].op .*must be a class that extends .*Operation')])
def test_errors_of_ones_own_names_say_what_is_expected(
    own, parse, section, message):
  registry.allow('own_names', 'own_name')
  with pytest.raises(ValueError, match=message):
    parse(section)


def test_a_deleted_leaf_is_named():
  with pytest.raises(
      registry.DeletedError, match='extras.gone.page:draw was deleted'):
    registry.load('vit_jax.extras.gone.page:draw')


def test_only_functions_that_declare_it_are_sources(own):
  registry.allow('own_names')
  for name in ('own_names:other', 'os:abort', 'own_names:Loss'):
    with pytest.raises(ValueError, match='data.source .*must be a function'):
      open_source.open_splits(data.parse({'source': name}))


@pytest.mark.parametrize('use', [
    lambda: objectives.parse({'name': 'own_names:Loss'}),
    lambda: evals.parse({'x': {'name': 'own_names:Metric'}}),
    lambda: factory.parse({'name': 'own_names:Loss'}),
    lambda: data.parse({'eval_ops': [{'op': 'own_names:Op'}]}),
    lambda: open_source.open_splits(data.parse({'source': 'own_names:source'})),
])
def test_modules_that_no_one_has_named_are_not_imported(own, use):
  with pytest.raises(ValueError, match='add --import=own_names '):
    use()
  assert 'own_names' not in sys.modules


def test_an_imported_module_is_allowed(own, monkeypatch):
  monkeypatch.syspath_prepend(os.getcwd())
  import own_names
  assert isinstance(
      objectives.parse({'name': 'own_names:Loss'}), own_names.Loss)


def test_a_config_file_names_modules_beside_itself(own, tmp_path, monkeypatch):
  (tmp_path / 'config.py').write_text(
      'import ml_collections\n\ndef get_config():\n'
      '  import own_names  # Also inside the function.\n'
      '  del own_names\n  return ml_collections.ConfigDict('
      "{'objective': {'name': 'own_names:Loss'}})\n")
  monkeypatch.chdir('/')
  raw = config_file.read(str(tmp_path / 'config.py'))
  sys.modules.pop('own_names')
  assert objectives.parse(raw['objective']).name == 'own_names:Loss'


@pytest.mark.parametrize(('name', 'hint'), [
    ('cifar10', ''), ('cifr10', " Did you mean 'cifar10'?"),
    ('lr', " Did you mean 'learning_rate'?"), ('xyz', '')])
def test_only_an_unknown_name_has_a_suggestion(name, hint):
  assert registry.nearest(name, ['cifar10', 'learning_rate']) == hint
