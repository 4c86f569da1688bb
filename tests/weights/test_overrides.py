"""Overrides are checked before a file is read."""

import pytest

from vit_jax import schema
from vit_jax.weights import overrides as overrides_lib


@pytest.mark.parametrize(('given', 'words'), [
    ({'num_head': 2}, "override 'num_head'. Did you mean 'num_heads'"),
    ({'mena': 0.5}, "Did you mean 'mean'"),
    ({'mean': (0.5, 0.5)}, 'mean must be one number, or one for each of 3'),
    ({'std': 0}, 'std must be above 0'),
    ({'labels': 'abcde'}, "labels must be a list, but is 'abcde'"),
    ({'resolution': 0}, r'resolution must be at least 1, but is \(0, 0\)'),
    ({'resolution': True}, 'must be a list, but is True'),
    ({'num_heads': 'two'}, "num_heads must be int, but is 'two'"),
    ({'gelu': 'relu'}, "gelu is 'relu'.*Expected one of 'tanh', 'exact'"),
    ({'backbone': {'deph': (1,)}}, "Did you mean 'depths'"),
    ({'prefix': 3}, 'prefix must be str')])
def test_an_invalid_override_is_an_error(given, words):
  with pytest.raises(ValueError, match=words):
    overrides_lib.parse(given)


def test_text_from_the_command_line_is_parsed():
  found = overrides_lib.parse({name: schema.FlagText(text) for name, text in {
      'resolution': '(24, 48)', 'num_heads': '4', 'gelu': 'exact'}.items()})
  assert found.preprocess == {'resolution': (24, 48)}
  assert found.model == {'num_heads': 4, 'gelu': 'exact'}
