"""Only mistakes of the user become a message without a traceback."""

import ast
import pathlib
import re

import pytest

from vit_jax import exceptions
from vit_jax.checkpoints import checksums

PACKAGE = pathlib.Path(exceptions.__file__).parent
# Modules that catch errors of a library, or of its values from files, and the
# two that report any error.
CATCHES_MORE = {
    '__main__', 'exceptions', 'data/images/decode', 'data/images/image_file',
    'data/sources/tfds', 'data/splits/split_strings', 'experiment/config_file',
    'parallel/coordination', 'parallel/mesh', 'parallel/processes',
    'run/writer', 'untrusted', 'weights/formats/npz',
    'extras/curation/beam_runner', 'extras/curation/bit_depth',
    'extras/curation/output', 'extras/curation/taught',
    'extras/diagnostics/shift', 'extras/doctor/checks',
    'extras/optimizers/of_optax', 'extras/plan/max_batch',
    'extras/sweep/config', 'extras/zoo/pytorch', 'extras/zoo/zero_shot'}


def test_a_place_is_put_in_front_of_user_errors_only():
  with pytest.raises(checksums.ChangedError, match='^config: differs$'):
    with exceptions.within('config'):
      raise checksums.ChangedError('differs')
  with pytest.raises(exceptions.UserError, match='^differs$'):
    with exceptions.within(''):
      raise exceptions.UserError('differs')
  with pytest.raises(ValueError, match='^a bug$') as caught:
    with exceptions.within('config'):
      raise ValueError('a bug')
  assert not isinstance(caught.value, exceptions.UserError)


def test_errors_of_our_own_code_are_caught_as_user_errors():
  def is_broad(node):
    return isinstance(node, ast.ExceptHandler) and not {
        'ValueError', 'Exception'}.isdisjoint(
            name.id for name in ast.walk(node.type)
            if isinstance(name, ast.Name))

  found = {
      path.relative_to(PACKAGE).with_suffix('').as_posix()
      for path in PACKAGE.rglob('*.py') if 'serving' not in path.parts
      and any(map(is_broad, ast.walk(ast.parse(path.read_text()))))}
  assert found <= CATCHES_MORE


def test_only_exceptions_of_libraries_become_errors_that_name_a_file():
  called = set()
  for text in map(pathlib.Path.read_text, PACKAGE.rglob('*.py')):
    ours = {'self', *re.findall(
        r'^ *(?:from vit_jax.* (?:import|as)|def) ([a-z_]\w+)', text, re.M)}
    called |= {
        name for block in ast.walk(ast.parse(text))
        if isinstance(block, ast.With) and re.search(
            r'exceptions\.naming|intact|open_zip', ast.unparse(block.items))
        for name in re.findall(r'([\w.]+)\(', ast.unparse(block.body))
        if name.partition('.')[0] in ours}
  # These parse untrusted bytes.
  assert called <= {'self._parse_label', '_shape', 'untrusted.parse_npy'}
