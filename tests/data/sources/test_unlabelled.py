"""Images without labels are opened from every layout."""

import pytest

from tests import leaves
from tests import own_data
from tests import pictures
from vit_jax import data
from vit_jax import registry

COUNT = 20


def _write(root, *names):
  for i, name in enumerate(names):
    pictures.save(root / name, pictures.picture(i, side=16))


def _folder(path):
  def write(root):
    _write(root, *(path.format(i) for i in range(COUNT)))
    return root
  return write


def _splits(root):
  _write(root, *(f'{"val" if i < 5 else "train"}/{i}.png'
                 for i in range(COUNT)))
  return root


def _glob(root):
  return f'{_folder("{}.png")(root)}/*.png'


def _table(header, cells):
  def write(root):
    _folder('{}.png')(root)
    return own_data.write_table(root, header, (
        f'{i}.png{cells.format(i)}' for i in range(COUNT)), images=False)
  return write


def _tar(root):
  _folder('{}.png')(root)
  return own_data.write_tar(root / 'a.tar', (
      (f'{i}.png', (root / f'{i}.png').read_bytes()) for i in range(COUNT)))


LAYOUTS = {
    'flat': _folder('{}.png'), 'one folder': _folder('all/{}.png'),
    'splits': _splits, 'glob': _glob, 'tar': _tar,
    'only paths': _table('path', ''), 'empty': _table('path,label', ','),
    'constant': _table('path,label', ',cat'),
    'ambiguous': _table('path,a,b', ',x,{}'),
    **({'captions': _table('path,label', ',text {}')} if leaves.has(
        registry.SUGGESTIONS) else {})}


@pytest.fixture(params=LAYOUTS, name='source')
def _source(request, tmp_path):
  return str(LAYOUTS[request.param](tmp_path))


def test_every_layout_is_opened_for_objectives_without_labels(source):
  config = data.parse({'source': source})
  opened = [data.open_dataset(config, split=split)
            for split in ('train', 'all')]
  assert 'no labels' in opened[0].description and opened[0].is_unlabelled
  assert len(opened[1]) == COUNT and len(opened[0]) < COUNT
  batch = next(data.train_batches(config, opened[0], seed=0, batch_size=4))
  assert batch['image'].std() and not batch['label'].any()
  with pytest.raises(ValueError, match=r'such as mae \(docs/data.md\)'):
    data.open_dataset(config, labelled=True)


@pytest.mark.parametrize('write', [
    _folder('{}/x.png'), _table('path,label', ',{}')])
def test_labels_can_be_ignored(tmp_path, write):
  opened = own_data.open_path(write(tmp_path), 'none', labelled=False)
  assert opened.no_labels == 'data.target is none: labels are ignored.'
  assert sum(own_data.sizes(opened).values()) == COUNT
