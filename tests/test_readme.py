"""What the README tells a newcomer to type is what the code takes."""

import pathlib
import re
import shlex

import pytest

import main
from vit_jax.experiment import config as config_lib

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / 'README.md').read_text()
# Lines that end in a backslash go on in the next.
BLOCKS = re.findall(r'```\w*\n(.*?)```', TEXT, flags=re.DOTALL)
LINES = [line.split('#')[0].strip().removeprefix('!')
         for block in BLOCKS for line in block.replace('\\\n', ' ').split('\n')]
COMMANDS = [line for line in LINES if line.startswith('python main.py')]


def test_there_are_lines_for_every_way_to_use_it():
  assert len(COMMANDS) >= 10
  assert {shlex.split(line)[2] for line in COMMANDS} >= {'evaluate', 'doctor'}


@pytest.mark.parametrize('line', COMMANDS)
def test_a_line_of_the_readme_is_understood(line):
  words = shlex.split(line)[2:]
  command = words.pop(0) if not words[0].startswith('-') else main.DEFAULT
  _, parser = main.build_parser(command)
  overrides = [w.removeprefix('--config.') for w in words
               if w.startswith('--config.')]
  args = parser.parse_args([w for w in words if not w.startswith('--config.')])
  if command != 'train':
    return
  # The checkpoint that a line starts from is made by the line before it.
  start = [o for o in overrides if o.startswith('init.checkpoint=')]
  specification = args.config
  if start:
    separator = ',' if ':' in specification else ':'
    specification += f'{separator}model=B/16'
  config_lib.load(str(ROOT / specification),
                  [o for o in overrides if o not in start])


def test_every_file_that_the_readme_links_is_there():
  links = re.findall(r'\]\((?!https?:)([^)#]+)\)', TEXT)
  assert 'docs/quickstart.png' in links
  assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_requirements_file_and_target_is_there():
  for name in set(re.findall(r'requirements[\w-]*\.txt', TEXT)):
    assert (ROOT / name).exists()
  makefile = (ROOT / 'Makefile').read_text()
  for target in set(re.findall(r'make (quickstart|test|\w+) ', TEXT)):
    if f'make {target} ' in '\n'.join(BLOCKS):
      assert re.search(rf'^{target}:', makefile, flags=re.MULTILINE)
