"""Datasets with some of the model's classes, matched by name."""

import json

import numpy as np
import pytest

from vit_jax.data import known_datasets

RNG = np.random.default_rng(0)
# Classes of the model, in an order of its own.
SYNSETS = [f'n{i:08}' for i in RNG.choice(10**8, 1000, replace=False)]
LOGITS = RNG.normal(size=(60, 1000)).astype(np.float32)


def evaluate(toy, labels, section=None, *, names=SYNSETS, logits=LOGITS,
             model_names=SYNSETS, size=7, **facts):
  split = toy.split(logits, labels, class_names=tuple(names),
                    num_classes=len(names), size=size, **facts)
  return toy({'name': 'shift', **(section or {})}, {'': split},
             num_classes=1000, class_names=model_names and tuple(model_names))(
                 toy.params).metrics


def test_predictions_are_restricted_to_the_classes_of_the_dataset(toy):
  chosen = RNG.choice(1000, 200, replace=False)  # In any order.
  labels = RNG.integers(0, 200, 60)
  labels[:20] = LOGITS[:20, chosen].argmax(-1)
  ranks = (LOGITS[:, chosen] > LOGITS[
      np.arange(60), chosen[labels]][:, None]).sum(-1)
  assert evaluate(toy, labels, names=[SYNSETS[i] for i in chosen]) == {
      'accuracy': pytest.approx((ranks < 1).mean()),
      'accuracy_top_5': pytest.approx((ranks < 5).mean()), 'examples': 60}


def test_classes_with_images_count_if_imagenet_a_declares_all(toy):
  present = RNG.choice(1000, 200, replace=False)
  section = {'source': 'imagenet_a'}
  assert known_datasets.facts('imagenet_a').num_present == 200
  labels = present[LOGITS[:, present].argmax(-1)]
  result = evaluate(toy, labels, section, stored=present, may_miss=True)
  assert result['accuracy'] == 1 and evaluate(toy, labels)['accuracy'] < 1
  with pytest.raises(ValueError, match='toy test has images of 90 classes, not '
                     'of 200. Evaluate on all images'):
    evaluate(toy, labels, section, stored=present[:90])


def test_unknown_classes_are_an_error_that_names_them(toy):
  names = [SYNSETS[3], 'n00000000', 'n00000001']
  with pytest.raises(ValueError, match='only here: n00000000, n00000001'):
    evaluate(toy, [0, 1], names=names, logits=LOGITS[:2])
  with pytest.raises(ValueError, match=r'the model \(toy\): 1,000 without'):
    evaluate(toy, [0, 1], names=names, logits=LOGITS[:2], model_names=None)


@pytest.fixture
def mappings(tmp_path):
  """The files of ObjectNet's release, for three folders."""
  lines = [f'class {i}' for i in RNG.permutation(1000)]
  contents = {
      'folder_to_objectnet_label.json': {
          'alarm_clock': 'Alarm clock', 'band_aid': 'Band Aid',
          'chair': 'Chair'},
      'objectnet_to_imagenet_1k.json': {
          'Alarm clock': 'class 409; class 530', 'Chair': 'class 423'},
      # Class index in the sorted order of synsets -> line.
      'pytorch_to_imagenet_2012_id.json': {
          str(i): lines.index(f'class {i}') for i in range(1000)}}
  for name, content in contents.items():
    (tmp_path / name).write_text(json.dumps(content))
  (tmp_path / 'imagenet_to_label_2012_v2').write_text('\n'.join(lines) + '\n')
  return tmp_path


def test_objectnet_takes_the_largest_logit_of_each_class(toy, mappings):
  index = {i: SYNSETS.index(sorted(SYNSETS)[i]) for i in (409, 530, 423)}
  clock = LOGITS[:, [index[409], index[530]]].max(-1)
  correct = (LOGITS[:, index[423]] > clock).astype(int)  # 1: a chair.
  labels = np.where(correct, 2, 0)
  labels[::4] = 1  # Not a class of ImageNet.
  labels[1] = 2 - labels[1]
  assert evaluate(toy, labels, {'mappings': str(mappings)}, names=[
      'alarm_clock', 'band_aid', 'chair']) == {
          'accuracy': pytest.approx(44 / 45), 'examples': 45}


@pytest.mark.parametrize(('damage', 'message'), [
    (lambda folder: (folder / 'objectnet_to_imagenet_1k.json').unlink(),
     'Cannot read the classes of ObjectNet'),
    (lambda folder: (folder / 'imagenet_to_label_2012_v2').write_text('a\nb\n'),
     'Expected the folder `mappings`')])
def test_incomplete_mappings_are_an_error(toy, mappings, damage, message):
  damage(mappings)
  with pytest.raises(ValueError, match=message):
    evaluate(toy, [0], {'mappings': str(mappings)}, names=['chair'])
