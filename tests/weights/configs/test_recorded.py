"""A JSON object knows which of its settings were not read."""

import re

from vit_jax.weights.configs import recorded


def test_settings_that_were_not_read_are_listed_unless_they_are_off():
  config = recorded.Recorded({
      'read': 1, 'asked': 2, 'other': 3, 'off': False, 'none': None, 'tag': 'x',
      'size': {'height': 4, 'width': 5}, 'sizes': [6], 'all': {'a': 1}})
  assert config['read'] == config.get('read') == 1
  assert 'asked' in config
  assert config.get('absent', 7) == 7
  assert config['size']['height'] == 4
  assert dict(config['all'].items()) == {'a': 1}
  assert list(config.unread(re.compile('tag'))) == [
      'other=3', 'size.width=5', 'sizes']
