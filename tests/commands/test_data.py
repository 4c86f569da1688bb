"""`data check` says what it found, and its status is what was asked for."""

import json

import pytest

import main
from tests import pictures


@pytest.fixture(name='photos')
def _photos(tmp_path):
  for i in range(12):
    path = tmp_path / 'photos' / ('cat', 'dog')[i % 2] / f'{i}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pictures.encoded(pictures.picture(i)))
  return tmp_path / 'photos'


def _check(photos, *flags):
  return main.main(['data', 'check', f'--source={photos}', *flags])


def test_a_clean_folder_passes_strictly(photos, capsys):
  assert _check(photos, '--strict', '--min-margin=1') == 0
  out = capsys.readouterr().out
  assert 'cannot be read' not in out and 'read 12 examples' in out


def test_harm_fails_only_strictly_and_is_in_every_form(
    photos, tmp_path, capsys):
  (photos / 'cat' / 'empty[0].jpg').write_bytes(b'')
  page, facts = tmp_path / 'out' / 'page.html', tmp_path / 'facts.json'
  assert _check(photos, f'--html={page}', f'--json={facts}') == 0
  assert 'cat/empty[0].jpg' in capsys.readouterr().out
  assert 'cat/empty[0].jpg' in page.read_text()
  found = json.loads(facts.read_text())
  assert [error['key'] for error in found['unreadable']] == [
      'cat/empty[0].jpg']
  assert found['found'][0] == {
      'text': '1 picture that cannot be read', 'harmful': True}
  assert _check(photos, '--strict') == 1


def test_a_folder_that_is_not_there_is_said(tmp_path, capsys):
  assert _check(tmp_path / 'nowhere') == 2
  assert 'nowhere' in capsys.readouterr().err
