"""Distillation: the loss of a teacher, and what the teacher sees."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests import toy
from tests.objectives import test_config
from vit_jax import data
from vit_jax import objectives
from vit_jax.data import preprocessing
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.extras.distill import distill
from vit_jax.extras.distill import teachers
from vit_jax.inference import load as load_lib

RNG = np.random.default_rng(0)
STUDENT, TEACHER = (jnp.asarray(RNG.normal(size=(5, 4)), jnp.float32)
                    for _ in range(2))
LABELS = jnp.array([0, 1, 2, 3, 0])


softmax = functools.partial(special.softmax, axis=-1)


@pytest.mark.parametrize('temperature', [1.0, 4.0])
def test_soft_targets_are_compared_by_a_scaled_divergence(temperature):
  p, q = softmax(TEACHER / temperature), softmax(STUDENT / temperature)
  np.testing.assert_allclose(
      distill.imitation(STUDENT, TEACHER, hard=False, temperature=temperature),
      temperature**2 * (p * np.log(p / q)).sum(-1), rtol=1e-4)


def test_hard_targets_are_the_classes_of_the_teacher():
  loss = distill.imitation(STUDENT, TEACHER, hard=True, temperature=9.0)
  rows = np.arange(5), TEACHER.argmax(-1)
  np.testing.assert_allclose(loss, -np.log(softmax(STUDENT)[rows]), rtol=1e-5)


class Fixed(nn.Module):
  """A model with given logits, and images of one colour as representation."""
  heads: tuple[str, ...] = ()

  def __call__(self, images, *, train):
    return {'logits': STUDENT, 'representation': images[:, 0, 0],
            **{name: STUDENT + i for i, name in enumerate(self.heads)}}


@pytest.fixture(scope='module')
def teacher():
  model = load_lib.create(num_classes=4, resolution=16, **toy.CONFIG['model'])
  return model.with_params(
      jax.tree.map(lambda x: jnp.asarray(x + 0.3), model.params),
      preprocess=preprocessing.parse({
          'resolution': 16, 'mean': (0.1, 0.2, 0.3), 'std': (0.4, 0.5, 0.6)}))


@pytest.mark.parametrize(('labels', 'message'), [
    (('one', *range(1, 10)), 'The teacher has other classes than the data'),
    pytest.param(range(9), 'only here: 9', marks=pytest.mark.slow), ((), '')])
def test_the_teacher_has_the_classes_of_the_data(
    tmp_path, capsys, labels, message):
  model = load_lib.create(
      num_classes=len(labels) or 10, resolution=8, **toy.CONFIG['model'])
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=tuple(map(str, labels)))).save(
          tmp_path / 'teacher')
  section = {'name': 'distill', 'teacher': str(tmp_path / 'teacher')}
  if message:
    with pytest.raises(ValueError, match=message):
      toy.build(objective=section)
  else:
    toy.build(objective=section)
    words = ' '.join(capsys.readouterr().out.split())
    assert words.count('has no class names') == 1


def test_the_outputs_of_the_teacher_follow_the_classes_of_the_data(tmp_path):
  names = tuple(map(str, (3, 1, 4, 0, 5, 9, 2, 6, 8, 7)))
  model = load_lib.create(num_classes=10, resolution=8, **toy.CONFIG['model'])
  model.params['head']['dense']['bias'] = np.float32([*map(int, names)])
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, labels=names)).save(tmp_path / 'teacher')
  found = toy.build(objective={
      'name': 'distill', 'teacher': str(tmp_path / 'teacher')}).teachers[0]
  assert found.preprocess.labels == tuple(map(str, range(10)))
  assert found.read()['head']['dense']['bias'].tolist() == [*range(10)]


def test_the_teacher_sees_pixels_of_its_range(tmp_path):
  model = load_lib.create(num_classes=10, resolution=8, **toy.CONFIG['model'])
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, value_range=(100, 160))).save(tmp_path / 'teacher')
  with pytest.raises(ValueError, match=r'range \(100.*range \(0, 255\)'):
    toy.build(objective={
        'name': 'distill', 'teacher': str(tmp_path / 'teacher')})


def test_the_teacher_sees_its_own_resolution(tmp_path):
  model = load_lib.create(num_classes=10, resolution=16, **toy.CONFIG['model'])
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, resolution=(12, 12))).save(tmp_path / 'teacher')
  teacher, = toy.build(objective={
      'name': 'distill', 'teacher': str(tmp_path / 'teacher')}).teachers
  assert teacher.resolution == (12, 12)
  assert teacher.read()['positions'].shape[-2] == 10


def test_soft_targets_are_those_of_a_softmax(teacher):
  sigmoid = dataclasses.replace(teacher, preprocess=dataclasses.replace(
      teacher.preprocess, activation='sigmoid'))
  with pytest.raises(ValueError, match='The teacher x was .*targets=hard'):
    build(sigmoid)
  build(sigmoid, targets='hard')


def build(teacher, *, model=None, **section):
  return objectives.parse(
      {'name': 'distill', 'teacher': 'x', **section}).build(objectives.Context(
          model or Fixed(), teachers=(teacher,),
          value_scale=value_scale_lib.ValueScale(0.5, 0.25)))


def taught(teacher, pixels):
  """Returns the outputs of the teacher for pixels in [0, 1]."""
  return teacher((pixels - np.float32([0.1, 0.2, 0.3])) / np.float32(
      [0.4, 0.5, 0.6]))


@pytest.mark.parametrize('weight', [0.25, 1.0])
def test_the_teacher_sees_the_same_images_in_its_own_size_and_scale(
    teacher, weight):
  objective = build(teacher, weight=weight)
  added = objective.extra_params({}, jax.random.key(0), teachers.image(teacher))
  assert jax.tree.map(jnp.shape, nn.unbox(added)) == {
      'teacher': {'0': jax.tree.map(np.shape, teacher.params)}}
  pixels = jnp.asarray(RNG.uniform(size=(5, 8, 8, 3)), jnp.float32)
  loss, measures = jax.jit(objective)(
      {'teacher': {'0': teacher.params}},
      {'image': pixels, 'label': LABELS}, jax.random.key(0))
  # Each pixel of a linear resize is a mean, so resizing and scaling commute.
  larger = jax.image.resize(pixels, (5, 16, 16, 3), 'bilinear')
  targets = taught(teacher, larger)['logits']
  labels = -np.log(softmax(STUDENT)[np.arange(5), LABELS])
  want = (1 - weight) * labels + weight * distill.imitation(
      STUDENT, targets, hard=False, temperature=1.0)
  np.testing.assert_allclose(loss, want, rtol=1e-4)
  assert tuple(objective.metrics) == tuple(measures) == (
      'accuracy', 'agreement')
  np.testing.assert_array_equal(
      measures['agreement'], STUDENT.argmax(-1) == targets.argmax(-1))


def test_the_distillation_token_learns_from_the_teacher_only(teacher):
  batch = {'image': jnp.full((5, 16, 16, 3), 0.5), 'label': LABELS}
  heads = Fixed(('cls_logits', 'distill_logits'))

  class Swapped(Fixed):
    def __call__(self, images, *, train):
      found = Fixed.__call__(self, images, train=train)
      return {**found, 'distill_logits': found['distill_logits'][:, ::-1]}

  def loss(model, weight):
    return build(teacher, model=model, weight=weight)(
        {'teacher': {'0': teacher.params}}, batch, jax.random.key(0))

  (plain, same), (other, changed) = (
      loss(model, 0.5) for model in (heads, Swapped(heads.heads)))
  np.testing.assert_array_equal(same['accuracy'], changed['accuracy'])
  targets = taught(teacher, batch['image'])['logits']
  terms = [distill.imitation(
      logits, targets, hard=False, temperature=1.0)
           for logits in (STUDENT, (STUDENT + 1)[:, ::-1])]
  np.testing.assert_allclose(
      other - plain, 0.5 * (terms[1] - terms[0]), rtol=1e-4, atol=1e-6)


def test_features_are_compared_after_a_projection(teacher):
  batch = {'image': jnp.ones((5, 16, 16, 3)) * jnp.arange(5).reshape(
      5, 1, 1, 1), 'label': LABELS}
  kernel = jnp.asarray(RNG.normal(size=(3, 8)), jnp.float32)
  params = {'teacher': {'0': teacher.params}, 'projector': {'kernel': kernel}}
  plain, _ = build(teacher)(params, batch, jax.random.key(0))
  loss, measures = build(teacher, feature_weight=0.5)(
      params, batch, jax.random.key(0))
  wanted = taught(teacher, batch['image'])['representation']
  distance = np.square(
      (batch['image'][:, 0, 0] - 0.5) / 0.25 @ kernel - wanted).mean(-1)
  np.testing.assert_allclose(measures['features'], distance, rtol=1e-4)
  np.testing.assert_allclose(loss - plain, 0.5 * distance, rtol=1e-3)


@pytest.mark.parametrize('labels', [
    {'multi_label': True}, {'targets': ('age',)}])
def test_labels_must_be_single_classes(labels):
  config = objectives.parse({'name': 'distill', 'teacher': 'x'})
  with pytest.raises(ValueError, match="name is 'distill', but"):
    config.resolve(data.Metadata(num_classes=1, **labels))


@pytest.mark.parametrize(('section', 'words'), [
    ({}, 'needs the weights of a teacher'),
    ({'teacher': 'x', 'weight': 0.0}, 'weight must be above 0'),
    ({'teacher': 'x', 'loss': 'sigmoid'}, "but loss is 'sigmoid'")])
def test_a_wrong_section_is_an_error(section, words):
  test_config.test_a_wrong_section_is_an_error(
      {'name': 'distill', **section}, words)
