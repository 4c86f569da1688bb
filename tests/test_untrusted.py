"""JSON files are parsed strictly."""

from unittest import mock

from etils import epath
import pytest

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


@pytest.mark.parametrize('content', ['{', None])
def test_a_damaged_summary_counts_as_missing(content, tmp_path):
  if content:
    (tmp_path / 'summary.json').write_text(content)
  assert not workdir_lib.read(epath.Path(tmp_path) / 'summary.json')


def test_a_summary_that_cannot_be_read_does_not_count_as_missing(
    tmp_path, monkeypatch):
  (tmp_path / 'summary.json').write_text('{"steps": 1}')
  monkeypatch.setattr(untrusted, 'read_text', mock.Mock(
      side_effect=OSError(5, 'Input/output error')))
  with pytest.raises(OSError, match='Input/output error'):
    workdir_lib.read(epath.Path(tmp_path) / 'summary.json')
