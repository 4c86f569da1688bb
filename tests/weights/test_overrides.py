"""Overrides of the settings of weights."""

from vit_jax import schema
from vit_jax.weights import overrides as overrides_lib


def test_text_from_the_command_line_is_parsed():
  found = overrides_lib.parse({name: schema.FlagText(text) for name, text in {
      'resolution': '(24, 48)', 'num_heads': '4', 'gelu': 'exact'}.items()})
  assert found.preprocess == {'resolution': (24, 48)}
  assert found.model == {'num_heads': 4, 'gelu': 'exact'}
