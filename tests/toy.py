"""The config of a tiny model on digits, as a dict and as a config file."""

CONFIG = {
    'total': {'steps': 2}, 'batch_size': 8,
    'model': {'width': 8, 'depth': 1, 'num_heads': 2, 'mlp_dim': 16,
              'patch': 4},
    'data': {'source': 'digits', 'resolution': 8},
    'optimizer': {'name': 'adam', 'learning_rate': 1e-3,
                  'schedule': {'name': 'constant'}},
}


def config(**changes):
  """Returns the config; a section keeps the values that are not given."""
  result = {**CONFIG, **changes}
  for section in ('model', 'data', 'optimizer'):
    result[section] = {**CONFIG[section], **result[section]}
  return result


def write(path, **changes):
  """Writes a config file and returns its path."""
  path.write_text(
      'from ml_collections import ConfigDict\n\ndef get_config():\n'
      f'  return ConfigDict({config(**changes)!r})\n')
  return str(path)
