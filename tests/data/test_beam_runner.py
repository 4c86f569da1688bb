"""A missing Beam and unknown flags are actionable errors."""

import sys

import pytest

import main


def test_a_missing_beam_is_an_error_that_names_the_command(
    monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, 'apache_beam', None)
  assert main.main(['data', 'prepare', '--source=digits', '--to=x']) == 2
  assert 'pip install -r requirements-beam.txt' in capsys.readouterr().err


@pytest.mark.parametrize(('argv', 'words'), [
    (['doctor', '--', '--region=x'], 'doctor takes no arguments after --'),
    (['data', 'prepare', '--sorce=x'], "Did you mean '--source'?"),
])
def test_unknown_flags_of_a_command_are_errors(argv, words, capsys):
  assert main.main(argv) == 2
  assert words in capsys.readouterr().err
