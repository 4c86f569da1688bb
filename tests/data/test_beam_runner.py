"""Beam is told what is asked of it, and missed in words."""

import sys

import pytest

import main
from vit_jax.data import beam_runner


def test_without_beam_the_error_says_what_to_install(monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, 'apache_beam', None)
  assert main.main(['data', 'prepare', '--source=digits', '--to=x']) == 2
  assert 'pip install -r requirements-beam.txt' in capsys.readouterr().err


def test_a_flag_that_beam_would_pass_over_is_an_error():
  pytest.importorskip('apache_beam')
  beam_runner.check_flags(['--direct_num_workers=2', '--region=europe-west4'])
  with pytest.raises(ValueError, match="Did you mean '--direct_num_workers'"):
    beam_runner.check_flags(['--direct_num_wokers=2'])


@pytest.mark.parametrize(('argv', 'words'), [
    (['doctor', '--', '--region=x'], 'doctor takes nothing after --'),
    (['data', 'prepare', '--sorce=x'], "Did you mean '--source'?"),
])
def test_flags_are_read_by_whom_they_are_for(argv, words, capsys):
  assert main.main(argv) == 2
  assert words in capsys.readouterr().err
