"""Hostile files are read or explained, within 5 seconds and 500 MB."""

import json

import pytest

from tests import fuzz

PNG = fuzz.PNG
INFO, FEATURES = (json.loads(fuzz.tfds_dataset('array_record')[name])
                  for name in ('dataset_info.json', 'features.json'))
DEEP = b'[' * 100_000


def table(*labels):
  return fuzz.csv_file([['path', 'label'], *(
      [f'{i}.png', labels[i % 2]] for i in range(fuzz.ROWS))])


def info(**changes):
  split = {**INFO['splits'][0], **changes}
  return fuzz.text({**INFO, 'splits': [split]})


def tar(size):
  """A tar whose second header has a size of 12 bytes."""
  content = fuzz.tar_file([('a.cls', b'0'), ('a.png', PNG)])
  header = bytearray(content[1024:1536])
  header[124:136] = size
  header[148:156] = b'%06o\0 ' % (256 + sum(header[:148] + header[156:]))
  return content[:1024] + bytes(header) + content[1536:]


# A reader, a file, and a pattern of its error.
CASES = [
    ('csv', table('cat', '9' * 23), None),
    ('csv', table('1', '9' * 5000), None),
    ('csv', table('0.5', '1e999'), None),
    ('csv', b'path,label\nhttp://x/1.png,a\nb.png,b\n', 'Download it first'),
    ('jsonl', DEEP, 'nested too deeply'),
    ('jsonl', b'{"path": "0.png", "label": %s}' % (b'9' * 5000), 'not JSON'),
    ('tar', fuzz.tar_file([('a.cls', b'0'), ('a.png', PNG), ('a.CLS', b'1')]),
     "'a.CLS' and another label of 'a'"),
    ('tar', tar(b'\x80' + b'\xff' * 11), 'is truncated, or not a tar'),
    ('tar', tar(b'\x80\0\0\0\x7f' + b'\xff' * 7), 'is truncated'),
    *(('dataset_info', content, '/') for content in (
        b'{"splits": 3}', DEEP, fuzz.text({**INFO, 'name': ''}),
        info(shardLengths=['-1']),
        info(filepathTemplate='../{DATASET}-{SPLIT}.{FILEFORMAT}'))),
    ('folder', b'a/\xff.png\nb/2.png\n\xfe/3.png', 'not Unicode'),
    ('tar', fuzz.tar_file([(f'{name}.{kind}', content) for i, name in enumerate(
        ('a\udcff', 'b', 'c')) for kind, content in (
            ('png', PNG), ('cls', b'%d' % (i % 2)))]), 'is not UTF-8'),
    ('metrics', b'\x80{"step": 1}\n', 'not UTF-8'),
    ('metrics', b'{"step": 1e999}\n', 'line 1'),
    ('flag', b'1' + b'0' * 40, None), ('flag', b'(' * 100_000, None),
]


@pytest.mark.parametrize(('name', 'content', 'words'), CASES)
def test_inputs_that_once_failed_are_explained(name, content, words):
  reader = fuzz.readers().get(name)
  if reader is None:
    pytest.skip('The leaf that reads it was deleted.')
  reader.check(content)
  if words:
    with pytest.raises((ValueError, OSError), match=words):
      reader.open(content)


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_any_file_is_read_or_explained():
  # No parameters, because collecting them would build all readers.
  for name, reader in fuzz.readers().items():
    try:
      fuzz.check(reader, max_examples=50 if name == 'image' else 8,
                 derandomize=True)
    except Exception as error:
      error.add_note(f'The reader is {name}.')
      raise
