"""Commands and links in the README and docs are valid; their programs train."""

import pathlib
import re
import shlex
import sys

import jax
from matplotlib import figure
import pytest

from tests import leaves
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
  assert named >= {*registry.COMMANDS} - {'train'}


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
  files = [ROOT / name for name in re.findall(r'requirements[\w-]*\.txt', text)]
  assert [path for path in links + files if not path.exists()] == []


def test_every_page_that_the_code_names_exists():
  named = {page for folder in ('vit_jax', 'configs', 'benchmarks', 'scripts')
           for path in (ROOT / folder).rglob('*.*')
           if path.suffix in ('.py', '.sh', '.yaml', '.jinja')
           for page in re.findall(r'docs/\w+\.md', path.read_text())}
  assert len(named) > 10
  assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


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
  program = '\n'.join(block for block in re.findall(
      r'```python\n(.*?)```', (ROOT / page).read_text(), re.DOTALL)
                      if 'transformers' not in block)
  for old, new in replaced:
    program = program.replace(old, new)
  exec(compile(program, page, 'exec'), {})


@pytest.mark.slow  # Trains.
def test_the_programs_of_docs_embed_train(
    one_device, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  # A smaller model, which needs a higher learning rate.
  run_programs('docs/embed.md', ('1e-3', '1e-2'), (
      "'depth': 2", "'depth': 1, 'width': 48, 'mlp_dim': 96"))
  found = re.findall(r"'(?:test/)?accuracy': ([\d.]+)", capsys.readouterr().out)
  assert len(found) == 4 and min(map(float, found)) > 0.8
  # A checkpoint of an own step is one of the library's.
  assert vit_jax.load('runs/sam', log=None).config.num_classes == 10
  assert vit_jax.load('tuned.npz', log=None).config.num_classes == 10


@pytest.mark.parametrize('page', ['README.md', 'docs/inference.md'])
def test_the_program_of_a_page_predicts(page, capsys, monkeypatch):
  monkeypatch.chdir(ROOT)
  run_programs(page)
  assert re.search(r"'n07920052_espresso'.*0\.92", capsys.readouterr().out)


EXTEND = (ROOT / 'docs/extend.md').read_text()
FILES = dict(re.findall(r'```python title=(\S+)\n(.*?)```', EXTEND, re.DOTALL))
MODULES = sorted(name[:-len('.py')] for name in FILES if name != 'config.py')


def forget(monkeypatch):
  """Makes the modules of the page unknown, as in a new process."""
  monkeypatch.setattr(registry, '_allowed', set())
  monkeypatch.setattr(registry, '_folders', [])
  for name in MODULES:
    sys.modules.pop(name, None)


@pytest.fixture
def project(tmp_path, monkeypatch):
  for name, text in FILES.items():
    (tmp_path / name).write_text(text)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', list(sys.path))
  forget(monkeypatch)
  yield
  forget(monkeypatch)


@pytest.mark.slow  # Trains.
def test_the_project_trains_and_only_named_modules_are_imported_again(
    project, one_device, monkeypatch, capsys):
  figures, save = [], figure.Figure.savefig
  monkeypatch.setattr(
      figure.Figure, 'savefig', lambda fig, *args, **options: (
          figures.append(fig), save(fig, *args, **options)))
  train = ['train', '--config=config.py', '--workdir=runs/focal',
           '--config.objective.gamma=1', '--config.data.num_threads=1']
  assert main.main(train) == 0
  # Metrics of one's own have a percent sign, a title and a curve.
  printed = capsys.readouterr().out
  assert re.search(r'margin/margin +\d+\.\d\d %', printed)
  assert float(re.search(r'test/accuracy +([\d.]+) %', printed)[1]) > 95
  if leaves.has(registry.CURVES):
    assert [axes.get_title(loc='left') for axes in figures[0].axes] == [
        'Loss', 'Accuracy', 'Confidence', 'Margin', 'Learning rate']
  # A finished run is read by its config file.
  forget(monkeypatch)
  assert main.main(train) == 0

  forget(monkeypatch)
  capsys.readouterr()
  evaluate = ['evaluate', '--workdir=runs/focal']
  for known in range(len(MODULES)):
    assert main.main([*evaluate, *(
        f'--import={name}' for name in sorted(
            {*MODULES} & {*sys.modules}))]) == 2
    error = capsys.readouterr().err
    name = re.search(r'--import=(\w+)', error.replace('\n', ' '))[1]
    assert name in MODULES and name not in sys.modules, error
    assert 'malformed' not in error
    registry.allow(name)
    if known == len(MODULES) - 1:
      assert main.main(evaluate) == 0

  forget(monkeypatch)
  with pytest.raises(ValueError, match='--import=convnet'):
    vit_jax.load('runs/focal', log=None)
  model = vit_jax.load('runs/focal', log=None, imports=['convnet', 'focal'])
  assert model.config.name == 'convnet:ConvNet'
  assert 'margin' not in sys.modules
  registry.allow(*MODULES)
  assert set(vit_jax.evaluate(
      'runs/focal', ['margin:Margin'],
      overrides=['evals.Margin.temperature=2'])) == {
          'Margin/margin', 'Margin/examples'}
