"""Images without labels are opened from every layout."""

import pytest

from tests import leaves
from tests import own_data
from tests import pictures
from vit_jax import data
from vit_jax import registry

COUNT = 20


def _folder(*paths):
  """Writes images of which every fourth one is in the last of the folders."""
  def write(root):
    for i in range(COUNT):
      pictures.save(root / paths[-1 if i % 4 == 0 else 0].format(i),
                    pictures.picture(i, side=16))
    return root
  return write


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
    'splits': _folder('train/{}.png', 'val/{}.png'), 'glob': _glob, 'tar': _tar,
    'only paths': _table('path', ''), 'empty': _table('path,label', ','),
    'constant': _table('path,label', ',cat'),
    'ambiguous': _table('path,a,b', ',x,{}'),
    **({'captions': _table('path,label', ',text {}')} if leaves.has(
        registry.SUGGESTIONS) else {})}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_every_layout_is_opened_for_objectives_without_labels(layout, tmp_path):
  config = data.parse({'source': str(LAYOUTS[layout](tmp_path))})
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
