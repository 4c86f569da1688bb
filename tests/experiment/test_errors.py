"""Errors of config files, settings, stages and experiments."""

import re

import pytest

from tests import toy
from tests.experiment import test_config
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import load_config

SMALL = test_config.SMALL


@pytest.mark.parametrize(('change', 'words'), [
    ({'batchsize': 8}, "config.batchsize. Did you mean 'batch_size'?"),
    ({'model': {'variant': 'BB/16'}}, "model size 'BB'"),
    ({'evals': {'test': {'name': 'clasification'}}},
     "Did you mean 'classification'?"),
    ({'batch_size': 10, 'accumulation': 4},
     'does not divide into 4 microbatches'),
    ({'averaging': 1.5}, 'above 0 and below 1'),
    ({'seed': 2**32}, 'but is 4294967296.'),
    ({'checkpoint': {'keep': 0}}, 'keep must be at least 1, but is 0.'),
    ({'checkpoint': {'patience': 3, 'best': ''}},
     "Set one, for example best='val/"),
    ({'checkpoint': {'best': 'test/loss', 'patience': 0}},
     'at least 1 evaluation, but is 0'),
    ({'checkpoint': {'best': 'test/loss', 'patience': 'long'}},
     'patience must be a duration'),
])
def test_mistakes_are_errors_with_the_key(change, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    config_lib.resolve({**SMALL, **change})


@pytest.mark.parametrize(('arguments', 'overrides', 'words'), [
    (':widht=16', [], "Did you mean 'width'?"),
    (':steps=20', [], 'set by flags, such as --steps'),
    (':width=wide', [], "must be int, but is 'wide'"),
    (':16', [], 'name=value'),
    ('s', [], "Did you mean '"),
    *(('', [override], words) for override, words in (
        ('optmizer.learning_rate=1', "Did you mean 'optimizer'?"),
        ('stage.tune.batch_size=8', "Did you mean 'stages'?"),
        ('evals.tset.split=train', "Did you mean 'test'?"),
        ('model.depth=deep', "model.depth must be int, but is 'deep'"),
        ('model.depth', '--config.section.key=value'),
        ('evals={"a": 3}', 'evals.a must be a section with keys'),
        ('optimizer.schedule=cosine', 'optimizer.schedule must be a section'),
        ('total=3', 'config.total must be a duration'),
        ('stages={}', 'Unknown key config.stages'),
        ('stages.tune.batch_size=8', "stage 'tune'"),
        ('init.checkpoint=/no/where',
         'init.checkpoint: There is nothing at /no/where. Expected a run')))])
def test_wrong_arguments_and_overrides_are_errors(
    tmp_path, arguments, overrides, words):
  (tmp_path / 'one.py').write_text(test_config.FILE)
  with pytest.raises((ValueError, FileNotFoundError), match=re.escape(words)):
    load_config.load(f'{tmp_path}/one.py{arguments}', overrides)


@pytest.mark.parametrize(('override', 'words'), [
    ('stages.tunee.batch_size=8', "Did you mean 'tune'?"),
    ('stages.tune.init.stage=pretrian', "Did you mean 'pretrain'?"),
    ('stages.pretrain.init.stage=tune', 'start from each other'),
    ('stages.tune.init.which=best', 'pretrain names no metric of its best'),
])
def test_wrong_stages_are_errors(override, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    load_config.load(toy.config(stages=test_config.STAGES), [override])


@pytest.mark.parametrize(('flag', 'words'), [
    ('table.key=scan', 'Unknown key data.table.key'),
    *((f'{name}=0', f'Unknown key data.{name}')
      for name in ('check_secs', 'eval_unreadable', 'max_unreadable'))])
def test_former_keys_are_read_from_saved_configs_only(flag, words):
  saved = config_lib.to_plain(config_lib.resolve(SMALL))
  with pytest.raises(ValueError, match=words):
    config_lib.resolve_with(saved, [f'data.{flag}'])


@pytest.mark.parametrize('trained', [
    {'mean': 'measured', 'std': 'measured'},
    {'mean': [0.1, 0.2], 'std': 0.5}], ids=str)
def test_pixels_that_cannot_be_scaled_as_for_the_weights_are_an_error(trained):
  with pytest.raises(ValueError, match=(
      'data.mean is auto, that of the initial weights, but theirs is .* have 3 '
      'channels. Set data.mean')):
    test_config.inherited({}, trained)


@pytest.mark.parametrize(('changes', 'words'), [
    ({'init': {'checkpoint': 'x'}}, 'which were not read. Read the config'),
    ({'total': {'epochs': 1}, 'batch_size': 3000},
     "total is {'epochs': 1}, which is no step of batch_size 3000 for 1,437"),
    ({'evals': {'test': {'name': 'objective', 'flip': True}}},
     'evals.test.flip averages predict'),
    ({'evals': {'test': {'name': 'objective'}},
      'checkpoint': {'best': 'test/precision_at_1'}},
     'Measured: test/loss, test/accuracy.'),
    *(({'evals': {'test': {}}, 'checkpoint': section}, words)
      for section, words in (
          ({'stop_below': [['test/r2', 0.5]]},
           "stop_below is 'test/r2', which is not measured on this data"),
          ({'best': 'test/acuracy'}, 'Use checkpoint.best=test/accuracy.'),
          ({'best': 'tst/accuracy'}, "no evaluator is called 'tst'."),
          ({'stop_below': [['val/loss', 0.5]]}, "evaluator is called 'val'"),
          ({'patience': 2}, 'checkpoint.best=EVALUATOR/METRIC'),
          ({'best': 'test/loss', 'patience': 2},
           'its evaluator runs at the end only')))])
def test_settings_that_do_not_fit_the_data_are_errors(changes, words):
  with pytest.raises(ValueError, match=re.escape(words)):
    toy.build(**changes)
