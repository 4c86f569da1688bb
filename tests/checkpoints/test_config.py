"""The section `checkpoint` names mistakes."""

import pytest

from vit_jax import schema
from vit_jax.checkpoints import config


@pytest.mark.parametrize(('section', 'message'), [
    ({'keep': 0}, 'keep must be at least 1, but is 0.'),
    ({'best_mod': 'min'}, 'best_mode'),
    ({'patience': 3}, "best is not set. Set one, for example best='val/"),
    ({'best': 'val/loss', 'patience': 0}, 'at least 1 evaluation, but is 0'),
    ({'best': 'val/loss', 'patience': {'epoch': 1}}, "Did you mean 'epochs'?"),
    ({'best': 'val/loss', 'patience': 'long'}, 'patience must be a duration'),
])
def test_mistakes_are_named(section, message):
  with pytest.raises(ValueError) as error:
    config.parse(section)
  assert message in str(error.value)


@pytest.mark.parametrize(('value', 'parsed'), [
    (3, 3), ({'epochs': 2}, schema.Duration(epochs=2)), (None, None)])
def test_patience_is_a_duration_or_a_number_of_evaluations(value, parsed):
  section = {'best': 'a/b', 'patience': value}
  assert config.parse(section).patience == parsed
