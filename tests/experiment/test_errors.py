"""Errors of config files, settings, stages and experiments."""

import pytest

from tests import own_data
from tests import toy
from tests.experiment import test_config
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import load_config

SMALL = test_config.SMALL
# Each row of a table: the arguments of a call, and a part of its error.
SETTINGS = [
    ({'batchsize': 8}, "config.batchsize. Did you mean 'batch_size'"),
    ({'model': {'variant': 'BB/16'}}, "model size 'BB'"),
    ({'evals': {'test': {'name': 'clasification'}}}, "mean 'classification'"),
    ({'batch_size': 10, 'accumulation': 4}, 'does not divide into 4 micro'),
    ({'averaging': 1.5}, 'above 0 and below 1'),
    ({'seed': 2**32}, 'but is 4294967296.'),
    ({'checkpoint': {'keep': 0}}, 'keep must be at least 1, but is 0.'),
    ({'checkpoint': {'patience': 3, 'best': ''}}, "for example best='val/"),
    ({'checkpoint': {'best': 'test/loss', 'patience': 0}}, 'at least 1 eval'),
    ({'checkpoint': {'best': 'test/loss', 'patience': 'long'}},
     'patience must be a duration')]
FILES = [
    (':widht=16', [], "Did you mean 'width'"),
    (':steps=20', [], 'set by flags, such as --steps'),
    (':width=wide', [], "must be int, but is 'wide'"),
    (':16', [], 'name=value'),
    ('s', [], "Did you mean '"),
    *(('', [override], words) for override, words in (
        ('optmizer.learning_rate=1', "Did you mean 'optimizer'"),
        ('stage.tune.batch_size=8', "Did you mean 'stages'"),
        ('evals.tset.split=train', "Did you mean 'test'"),
        ('model.depth=deep', "model.depth must be int, but is 'deep'"),
        (('model.depth', '1'), "model.depth must be int, but is '1'"),
        ('model.depth', '--config.section.key=value'),
        ('evals={"a": 3}', 'evals.a must be a section with keys'),
        ('optimizer.schedule=cosine', 'optimizer.schedule must be a section'),
        ('total=3', 'config.total must be a duration'),
        ('stages={}', 'Unknown key config.stages'),
        ('stages.tune.batch_size=8', "stage 'tune'"),
        ('init.checkpoint=/no/where',
         'init.checkpoint: There is nothing at /no/where. Expected a run'))),
    ('', [], test_config.FILE.replace('width: int = 8', 'width: int'),
     'one.py needs the argument width')]
STAGES = [
    ('stages.tunee.batch_size=8', "Did you mean 'tune'"),
    ('stages.tune.init.stage=pretrian', "Did you mean 'pretrain'"),
    ('stages.pretrain.init.stage=tune', 'start from each other'),
    ('stages.tune.init.which=best', 'pretrain names no metric of its best')]
EXPERIMENTS = [
    ({'total': {'epochs': 1}, 'batch_size': 3000},
     "total is {'epochs': 1}, which is no step of batch_size 3000 for 1,437"),
    ({'evals': {'test': {'name': 'objective', 'flip': True}}},
     'evals.test.flip averages predict'),
    ({'evals': {'test': {'name': 'objective'}},
      'checkpoint': {'best': 'test/precision_at_1'}},
     'Measured: test/loss, test/accuracy.'),
    ({'evals': {'test': {'every': {'steps': 1}}},
      'checkpoint': {'stop_below': [['test/r2', 0.5]]}},
     "stop_below is 'test/r2', which is not measured on this data"),
    *(({'evals': {'test': {}}, 'checkpoint': section}, words)
      for section, words in (
          ({'stop_below': [['test/r2', 0.5]]},
           'stop_below waits for test/r2, but its evaluator runs at the end'),
          ({'best': 'test/acuracy'}, 'Use checkpoint.best=test/accuracy.'),
          ({'best': 'tst/accuracy'}, "no evaluator is called 'tst'."),
          ({'stop_below': [['val/loss', 0.5]]}, "evaluator is called 'val'"),
          ({'patience': 2}, 'checkpoint.best=EVALUATOR/METRIC'),
          ({'best': 'test/loss', 'patience': 2},
           'its evaluator runs at the end only')))]


def load_file(root, arguments, overrides, text=test_config.FILE):
  (root / 'one.py').write_text(text)
  load_config.load(f'{root}/one.py{arguments}', overrides)


def validate_on_trained_data(root):
  own_data.write_folders(root, 'a', 'b')
  toy.build(data={'source': str(root), 'val_source': f'{root}/'})


def evaluate_patches(_):
  built = toy.build(evals={'x': {'name': 'knn', 'feature': 'patches'}})
  built.evaluate('x', built.init_state().params)


@pytest.mark.parametrize(('call', 'arguments', 'message'), [
    (call, arguments, message) for call, rows in (
        (lambda _, change: config_lib.resolve({**SMALL, **change}), SETTINGS),
        (load_file, FILES),
        (lambda _, override: load_config.load(
            toy.config(stages=test_config.STAGES), [override]), STAGES),
        # Former keys are read from saved configs only.
        (lambda _, flag: config_lib.resolve_with(config_lib.to_plain(
            config_lib.resolve(SMALL)), [f'data.{flag}=0']), [
                (key, f'Unknown key data.{key}') for key in (
                    'table.key', 'check_secs', 'eval_unreadable',
                    'max_unreadable')]),
        (lambda _, trained: test_config.inherited({}, trained), [
            (trained, 'data.mean is auto, that of the initial weights, but '
             'theirs is .* have 3 channels. Set data.mean') for trained in (
                 {'mean': 'measured', 'std': 'measured'},
                 {'mean': [0.1, 0.2], 'std': 0.5})]),
        (lambda _, changes: toy.build(**changes), EXPERIMENTS),
        (lambda _: config_lib.metric_mode(
            config_lib.resolve(SMALL), 'test/iou', setting='checkpoint.best'),
         [["metric in checkpoint.best 'iou'"]]),
        (lambda _: toy.build(init={'stage': 'pretrain'}).init_state(),
         [["init.stage is 'pretrain'.*random=True"]]),
        (validate_on_trained_data, [['is the data that is trained on']]),
        (evaluate_patches, [['feature is .patches., which is not a']]),
    ) for *arguments, message in rows])
def test_an_error_names_its_cause(tmp_path, call, arguments, message):
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    call(tmp_path, *arguments)
