"""Imports follow the layer table of CONTRIBUTING.md.

The tests parse the files and import nothing.
"""

import ast
import functools
import graphlib
import pathlib

ROOT = pathlib.Path(__file__).parents[1]

# Each row may import the rows above it. Within a row, a package may import
# itself, and others only according to WITHIN_A_ROW.
LAYERS = (
    ('exceptions',),
    ('types', 'tree', 'fields', 'schema', 'losses', 'metrics', 'atomic_files',
     'console', 'escape', 'nearest_neighbours', 'untrusted', 'classes',
     'registry'),
    ('models', 'data', 'optim', 'parallel'),
    ('objectives', 'training', 'checkpoints', 'weights', 'evals'),
    ('inference', 'experiment', 'run'),
    ('commands', '__init__'),
    ('__main__', 'main'),
    # The leaves, which no row above imports.
    ('extras',),
)
# Pairs (importer, imported) of the same row.
WITHIN_A_ROW = {
    ('main', '__main__'),
    ('console', 'escape'),
    ('schema', 'registry'),
    ('weights', 'checkpoints'),
    ('run', 'experiment'),
    # Beside `experiment`: neither imports the other.
    ('run', 'inference')}
# What leaves share.
SHARED_BY_LEAVES = ('html_page', 'pictures', 'plots')

# Meaningless names.
FORBIDDEN_NAMES = ('utils', 'util', 'helpers', 'helper', 'base', 'common', 'v2')


def module_of(path):
  """Returns vit_jax/extras/zoo/backbone.py as ('vit_jax', 'models', 'vit')."""
  parts = path.relative_to(ROOT).with_suffix('').parts
  return parts[:-1] if parts[-1] == '__init__' else parts


@functools.cache
def all_modules():
  return {module_of(path) for path in (ROOT / 'vit_jax').rglob('*.py')}


def sources():
  paths = sorted((ROOT / 'vit_jax').rglob('*.py'))
  return paths + [path for path in [ROOT / 'main.py'] if path.exists()]


@functools.cache
def imports_of(path):
  """Returns the modules that a file imports, as tuples of names."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      found |= {tuple(alias.name.split('.')) for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      origin = tuple(node.module.split('.'))
      for alias in node.names:
        # `from package import module` names the module.
        whole = (*origin, alias.name)
        found.add(whole if whole in all_modules() else origin)
  return found


def unit(module):
  """Returns the name of a module in LAYERS: its package within vit_jax."""
  if module == ('main',):
    return 'main'
  return module[1] if len(module) > 1 else '__init__'


def layer(name):
  row = next((i for i, names in enumerate(LAYERS) if name in names), None)
  assert row is not None, (
      f'{name!r} belongs to no layer: add it to CONTRIBUTING.md and LAYERS.')
  return row


def may_import(importer, imported):
  """Whether one of our modules may import another."""
  above, below = unit(importer), unit(imported)
  if above == below == 'extras':
    return imported[2] in (importer[2], *SHARED_BY_LEAVES)
  if above == below == 'commands':
    # Commands do not import each other.
    return (importer == imported or len(importer) == 2 or len(imported) == 2
            or imported[2] == 'arguments')
  if above == below:
    return True
  if layer(above) == layer(below):
    return (above, below) in WITHIN_A_ROW
  return layer(above) > layer(below)


def test_modules_import_only_lower_layers():
  assert not [
      (str(path), '.'.join(module)) for path in sources()
      for module in imports_of(path)
      if module[0] == 'vit_jax' and not may_import(module_of(path), module)]


def test_only_checkpoints_uses_orbax():
  users = {unit(module_of(path)) for path in sources()
           if any(module[0] == 'orbax' for module in imports_of(path))}
  assert users == {'checkpoints'}


def test_configs_import_only_config_modules():
  for path in (ROOT / 'configs').glob('**/*.py'):
    roots = {module[0] for module in imports_of(path)}
    assert roots <= {'ml_collections', 'configs', 'typing'}, path


def test_no_modules_import_each_other_even_inside_functions():
  # `prepare` raises an error with the modules of a cycle. Modules of a package
  # do not count as importing its `__init__`, although Python runs it first.
  graphlib.TopologicalSorter({
      module_of(path): imports_of(path) - {module_of(path)}
      for path in sources()}).prepare()


def test_no_module_has_a_meaningless_name():
  names = {name for path in sources() for name in module_of(path)}
  assert not names & set(FORBIDDEN_NAMES)
