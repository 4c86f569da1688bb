"""Completed configs: evaluators, the best checkpoint's metric, the dtype."""

import dataclasses
import json
from unittest import mock

from etils import epath
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import pictures
from tests import toy
from vit_jax import data
from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import complete
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.inference import images as images_lib
from vit_jax.run import workdir as workdir_lib

TEST = {'every': {'steps': 1}}


def _complete(facts, *, note=print, devices=None, **changes):
  """Completes a config for digits with other facts."""
  config = config_lib.resolve(
      toy.config(**{'evals': {'test': TEST}, **changes}))
  dataset = dataclasses.replace(data.open_dataset(config.data), **facts)
  return complete.complete(config, dataset, evaluators_lib.opener(
      config, dataset, data_optional=False), devices or jax.devices(),
                           note=note)


def _choose(splits, *, split='train', evals=None, multi_label=False, note=print,
            **section):
  chosen = _complete(
      {'splits': splits, 'split': split, 'multi_label': multi_label,
       'eval_split': 'test' if 'test' in splits else splits[-1]},
      evals=evals or {'test': TEST}, checkpoint=section, note=note)
  return chosen.checkpoint.best, {
      name: one.split for name, one in chosen.evals.items()}


@pytest.mark.parametrize(('splits', 'options', 'best'), [
    (('train', 'test'), {}, ''), (('train', 'val'), {}, ''),
    (('train', 'val', 'test'), {}, 'val/accuracy'),
    (('train', 'val', 'test'), {'multi_label': True}, 'val/precision_at_1'),
    (('train', 'val', 'test'), {'split': 'train+val[:50%]'}, ''),
    (('train', 'val', 'test'), {'best': ''}, ''),
    (('train', 'val', 'test'), {'best': 'test/loss'}, 'test/loss'),
    (('train', 'val', 'test'), {'evals': {'test': {}}}, ''),
    (('train', 'validation', 'test'), {'evals': {
        'few': {'name': 'fewshot', **TEST},
        'dev': {'split': 'validation', **TEST}}}, 'dev/accuracy')])
def test_the_best_checkpoint_is_chosen_on_a_validation_split(
    splits, options, best):
  chosen, evals = _choose(splits, **options)
  assert chosen == best
  if chosen and not options.get('best'):
    assert evals[best.split('/')[0]] in ('val', 'validation')


@pytest.mark.parametrize('name', ['val', 'validation'])
def test_an_evaluator_that_is_added_is_accepted_in_the_config(name):
  splits = 'train', name, 'test'
  shown, evals = _choose(splits)
  assert shown == f'{name}/accuracy'
  assert _choose(splits, best=f'{name}/loss') == (f'{name}/loss', evals)
  stop = ((f'{name}/loss', 0.5),)
  assert name in _choose(splits, best='', stop_below=stop)[1]


@pytest.mark.parametrize(('steps', 'best', 'log', 'count'), [
    # An evaluation reads as many images, 360, as 45 steps.
    (5, False, 1, 1), (100, False, 10, 2), (100, True, 10, 1),
    (1000, True, 50, 10)])
def test_short_runs_log_ten_times_and_evaluate_no_more_images_than_they_train(
    steps, best, log, count):
  experiment = toy.build(
      total={'steps': steps},
      checkpoint={'best': 'test/accuracy' if best else ''},
      evals={'test': {'every': 'auto', 'batch_size': 120}, 'end': {}})
  config = experiment.config
  assert config.log.every == schema.Duration(steps=log)
  due = [step for step in range(1, steps + 1)
         if experiment.is_due(config.evals['test'].every, step)]
  assert len(due) == count and due[-1] == steps
  assert config.evals['end'].every is None


SECTION = {'split': 'test[:24]', 'batch_size': 24}


def _losses(**section):
  experiment = toy.build(data=section, evals={
      'plain': SECTION, 'flipped': {**SECTION, 'flip': True}})
  rng = np.random.default_rng(0)  # The initial head is zero.
  params = jax.tree.map(
      lambda x: x + rng.normal(scale=0.3, size=x.shape).astype(x.dtype),
      experiment.init_state().params)
  return {name: experiment.evaluate(name, params).metrics['loss']
          for name in experiment.evaluators}


def test_mirroring_all_images_does_not_change_flipped_evaluations():
  upright = _losses()
  mirrored = _losses(eval_ops=[
      {'op': 'resize'}, {'op': 'flip', 'probability': 1.0}])
  assert upright['flipped'] == pytest.approx(mirrored['flipped'], rel=1e-6)
  assert upright['plain'] != pytest.approx(mirrored['plain'], rel=1e-6)


@pytest.mark.parametrize(('evaluator', 'objective', 'metric', 'mode'), [
    ('classification', {}, 'accuracy', 'max'),
    ('classification', {}, 'loss', 'min'),
    ('objective', {}, 'accuracy', 'max'),
    ('objective', {'name': 'masked_patch'}, 'color_accuracy', 'max'),
    ('objective', {'name': 'mae'}, 'loss', 'min')])
def test_evaluator_and_objective_declare_the_mode_of_a_metric(
    evaluator, objective, metric, mode):
  config = config_lib.resolve(toy.config(
      objective=objective, evals={'test': {'name': evaluator}}))
  assert config_lib.metric_mode(
      config, f'test/{metric}', setting='checkpoint.best') == mode


@pytest.mark.parametrize(('targets', 'kind', 'best'), [
    ((), 'classification', 'val/accuracy'),
    (('price',), 'regression', 'val/root_mean_square_error'),
    (('price', 'rooms'), 'regression', 'val/r2')])
def test_the_task_determines_the_evaluator_and_its_metric(targets, kind, best):
  chosen = _complete(
      {'splits': ('train', 'val', 'test'), 'targets': targets,
       'num_classes': len(targets) or 10}, data={
           'target_mean': [0.0] * len(targets),
           'target_std': [1.0] * len(targets)})
  assert {one.name for one in chosen.evals.values()} == {kind}
  assert chosen.checkpoint.best == best


@pytest.mark.parametrize(('count', 'split'), [
    (49_999, 'train'), (50_000, 'train[:10%]')])
def test_knn_uses_all_training_images_unless_there_are_many(count, split):
  experiment = toy.build(
      data={'source': 'shapes', 'num_examples': 8,
            'shapes': {'num_examples': count, 'label': 'single'}},
      evals={'knn': {'name': 'knn', 'train_split': 'auto'}})
  assert experiment.config.evals['knn'].train_split == split
  used = count if split == 'train' else count // 10
  assert f'with {used:,} of {split}' in experiment.describe_evaluator('knn')


def test_evaluators_that_need_labels_are_left_out(tmp_path, capsys):
  for i in range(20):
    pictures.save(tmp_path / f'{i}.png', pictures.picture(i, side=8))
  changes = {
      'data': {'source': str(tmp_path)}, 'evals': {
          'test': {'name': 'objective'},
          'knn': {'name': 'knn', 'train_split': 'train'}},
      'objective': {'name': 'mae', 'decoder_width': 8, 'decoder_depth': 1,
                    'decoder_heads': 2}}
  experiment = toy.build(**changes)
  assert [*experiment.evaluators] == ['test']
  # The line is wrapped, depending on the length of the path.
  assert 'has no labels: knn' in ' '.join(capsys.readouterr().out.split())
  with pytest.raises(ValueError, match='measures the head, .* objective mae'):
    toy.build(objective=changes['objective'], evals={'test': {}})
  with pytest.raises(ValueError, match="no evaluator is called 'knn'"):
    toy.build(**changes, checkpoint={'best': 'knn/accuracy'})
  with pytest.raises(ValueError, match=(
      r'(?s)has no class folders.*\s.predict. .* objectives such as mae')):
    toy.build(data={'source': str(tmp_path)})


OBJECTIVES = {
    'supervised': {},
    'mae': {'decoder_width': 8, 'decoder_depth': 1, 'decoder_heads': 2},
    'masked_patch': {}}


@pytest.mark.slow
def test_features_of_a_layer_are_those_of_the_model_for_every_objective():
  found = {}
  for name, settings in OBJECTIVES.items():
    built = toy.build(
        model={'head_bias': 0.0}, objective={'name': name, **settings},
        evals={layer: {'name': 'knn', 'feature': layer, 'split': 'test[:40]',
                       'train_split': 'train[:80]'}
               for layer in ('mean', 'mean:1')})
    params = built.init_state().params
    found[name] = {
        layer: built.evaluate(layer, params).metrics['feature_rank']
        for layer in built.evaluators}
    # The parameters of the ViT have the same seed.
    assert found[name] == pytest.approx(found['supervised'], rel=1e-4)
  assert found['mae']['mean'] != pytest.approx(found['mae']['mean:1'], rel=1e-3)


def test_training_evaluation_and_predict_normalise_by_one_method(monkeypatch):
  seen, rng = [], np.random.default_rng(0)

  def zeros(scale, pixels):
    seen.append(scale)
    return 0 * pixels

  monkeypatch.setattr(value_scale_lib.ValueScale, 'normalize', zeros)
  scale = {'mean': (0.1, 0.2, 0.3), 'std': (0.4, 0.5, 0.6)}
  experiment = toy.build(
      data={'channels': 3, **scale}, evals={'plain': SECTION})
  params = jax.tree.map(
      lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype),
      experiment.init_state().params)
  images = rng.uniform(size=(2, 8, 8, 3))
  losses, _ = experiment.objective(
      params, {'image': jnp.float32(images), 'label': jnp.zeros(2, int)},
      experiment.key, train=False)
  assert losses[0] == losses[1]
  experiment.evaluate('plain', params)
  assert not images_lib.read(
      images[0], preprocessing.Preprocess((8, 8), **scale)).any()
  assert seen == 3 * [value_scale_lib.ValueScale(**scale)]


@pytest.mark.parametrize(('platform', 'expected'), [
    ('cpu', 'float32'), ('gpu', 'bfloat16'), ('tpu', 'bfloat16')])
def test_the_dtype_auto_follows_the_devices(platform, expected):
  def completed(**model):
    return _complete({}, model=model, devices=[
        mock.Mock(spec=jax.Device, platform=platform)]).model.dtype

  assert completed(dtype='auto') == expected
  assert completed(dtype='auto', attention='auto') == expected
  assert completed(dtype='float32') == 'float32'
  assert completed(dtype='bfloat16') == 'bfloat16'
  # The fused kernel needs bfloat16 on any device.
  assert completed(dtype='auto', attention='cudnn') == 'bfloat16'


@pytest.mark.parametrize(('dtype', 'kept'), [
    ('auto', 'bfloat16'), ('float32', 'float32')])
def test_a_run_keeps_its_dtype(dtype, kept, tmp_path):
  path = epath.Path(tmp_path) / workdir_lib.CONFIG
  assert workdir_lib.read(path) == {}
  path.write_text(json.dumps(config_lib.to_plain(config_lib.resolve(
      toy.config(model={'dtype': 'bfloat16'})))))
  experiment = build_lib.build(
      config_lib.resolve(toy.config(model={'dtype': dtype})),
      earlier=workdir_lib.read(path))
  assert experiment.config.model.dtype == experiment.model.config.dtype == kept


def test_only_what_the_compiled_program_decides_stays_auto():
  completed = _complete(
      {}, data={'mean': 'auto', 'std': 'auto', 'resolution': 'auto'},
      model={'dtype': 'auto'}, evals={
          'test': {'every': 'auto'},
          'knn': {'name': 'knn', 'train_split': 'auto'}})
  text = json.dumps(config_lib.to_plain(completed), indent=0)
  assert {line.partition(':')[0] for line in text.splitlines()
          if 'auto' in line} == {'"accumulation"', '"preset"'}
