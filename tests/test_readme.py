"""Commands and links in the README and docs are valid."""

import pathlib
import re
import shlex

import jax
import pytest

from tests import leaves
from tests import pictures
import vit_jax
from vit_jax import __main__ as main
from vit_jax import registry
from vit_jax.experiment import load_config

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / 'README.md').read_text()
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md',
         *sorted((ROOT / 'docs').glob('*.md')),
         *sorted((ROOT / 'configs').rglob('*.md'))]


def commands():
  """Every distinct `python main.py` command of the code blocks and tables."""
  found = []
  for page in PAGES:
    text = page.read_text()
    for block in re.findall(r'```\w*\n(.*?)```', text, flags=re.DOTALL):
      # A trailing backslash continues the line.
      for line in block.replace('\\\n', ' ').split('\n'):
        found.append(line.split(' #')[0].strip().removeprefix('!'))
    found += re.findall(r'`(python main\.py [^`]+)`', text)
  return sorted({line for line in found
                 if line.startswith('python main.py') and '…' not in line
                 and '...' not in line and '--help' not in line})


def test_the_readme_shows_a_command_for_every_task():
  named = {shlex.split(line)[2] for line in commands()}
  assert named >= {'evaluate', 'doctor', 'sweep', 'plan', 'flops',
                   'predict', 'features', 'inspect', 'export', 'convert',
                   'benchmark', 'deduplicate', 'data'}


def check_arguments(words):
  """Raises if main.py rejects the arguments or the config is missing."""
  command = words.pop(0) if not words[0].startswith('-') else main.DEFAULT
  args = main.parse([command, *words])
  overrides = args.overrides
  if command != 'train' or args.config == 'config.py':  # Of docs/extend.md.
    return
  # The model of a run that starts from a checkpoint is that checkpoint's,
  # which does not exist here.
  start = [o for o in overrides if o.startswith('init.checkpoint=')]
  specification = re.sub(':checkpoint=[^,]+', ':checkpoint=photos', args.config)
  if start:
    separator = ',' if ':' in specification else ':'
    specification += f'{separator}model=B/16'
  with leaves.skip_deleted():
    load_config.load(
        str(ROOT / specification), [o for o in overrides if o not in start],
        open_weights=None if start else load_config.open_weights)


def is_kept(line):
  """Whether the command is not one of a deleted leaf."""
  first = shlex.split(line)[2]
  return (first.startswith('-') or first in leaves.COMMANDS) and (
      '--push' not in line or leaves.has(registry.PUBLISH))


@pytest.mark.parametrize('line', filter(is_kept, commands()))
def test_documented_command_is_valid(line):
  check_arguments(shlex.split(line)[2:])


@pytest.mark.parametrize('page', [
    *PAGES, *sorted((ROOT / 'notebooks').glob('*.ipynb'))],
                         ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page):
  text = page.read_text()
  links = [page.parent / link for link in re.findall(
      r'\]\((?!https?:)([^)#]+)', text)]
  files = [ROOT / name for name in re.findall(
      r'requirements[\w-]*\.txt', text)]
  assert [path for path in links + files if not path.exists()] == []


def test_the_trained_weights_load():
  model = vit_jax.load(ROOT / 'docs' / 'cifar10_resnet.npz')
  assert sum(x.size for x in jax.tree.leaves(model.params)) == 747_594
  assert model.preprocess.labels[3] == 'cat'


def test_every_named_make_target_exists():
  makefile = (ROOT / 'Makefile').read_text()
  for target in set(re.findall(r'^make ([\w-]+)', README, flags=re.MULTILINE)):
    assert re.search(rf'^{target}:', makefile, flags=re.MULTILINE), target


def run_programs(page, *replaced):
  """Runs the blocks of a page as one program, with words replaced."""
  program = '\n'.join(re.findall(
      r'```python\n(.*?)```', (ROOT / page).read_text(), re.DOTALL))
  for old, new in replaced:
    program = program.replace(old, new)
  exec(compile(program, page, 'exec'), {})


@pytest.mark.slow  # Trains.
def test_the_program_of_docs_api_trains(one_device, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  pictures.save(tmp_path / 'cat.jpg', pictures.picture(0))
  run_programs('docs/api.md')
  assert vit_jax.load('tuned.npz', log=None).config.num_classes == 10


@pytest.mark.slow  # Trains.
def test_the_programs_of_docs_embed_train(
    one_device, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  # A smaller model, which needs a higher learning rate.
  run_programs('docs/embed.md', ('1e-3', '1e-2'), (
      "'depth': 2", "'depth': 1, 'width': 48, 'mlp_dim': 96"))
  found = re.findall(r"'(?:test/)?accuracy': ([\d.]+)",
                     capsys.readouterr().out)
  assert len(found) == 4 and min(map(float, found)) > 0.8
  # A checkpoint of an own step is one of the library's.
  assert vit_jax.load('runs/sam', log=None).config.num_classes == 10
