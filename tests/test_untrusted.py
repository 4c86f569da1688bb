"""JSON is parsed strictly; damaged images and weights are read or explained."""

import os
from unittest import mock

from etils import epath
import pytest

from tests import fuzz
from vit_jax import untrusted
from vit_jax.run import workdir as workdir_lib


@pytest.mark.parametrize(('content', 'words'), [
    ('{', 'x.json is not JSON: '), ('[]', 'must be a JSON object, but is list'),
    ('[' * 10**5, 'nested too deeply'),
    ('{"a": 1, "a": 2}', "it has the key 'a' twice: 1 and 2")])
def test_json_files_hold_one_object_without_repeated_keys(
    content, words, tmp_path):
  (tmp_path / 'x.json').write_text(content)
  with pytest.raises(ValueError, match=words):
    untrusted.read_json(tmp_path / 'x.json')


def test_a_damaged_summary_counts_as_missing_but_not_one_that_is_not_read(
    tmp_path, monkeypatch):
  path = epath.Path(tmp_path) / 'summary.json'
  assert not workdir_lib.read(path)
  path.write_text('{')
  assert not workdir_lib.read(path)
  monkeypatch.setattr(untrusted, 'read_text', mock.Mock(
      side_effect=OSError(5, 'Input/output error')))
  with pytest.raises(OSError, match='Input/output error'):
    workdir_lib.read(path)


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_any_file_is_read_or_explained():
  examples = int(os.environ.get('FUZZ_EXAMPLES', 0))
  # No parameters, because collecting them would build all readers.
  for name, reader in fuzz.readers().items():
    try:
      reader.check(max_examples=examples or (50 if name == 'image' else 8),
                   derandomize=not examples)
    except Exception as error:
      error.add_note(f'The reader is {name}.')
      raise
