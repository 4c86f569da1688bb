"""Settings and data that break a convention or contradict a declaration.

Their errors name the key, the file, the row or the member, and what to do.
"""

import dataclasses
import functools
import itertools
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import hostile
from tests import in_memory
from tests import leaves
from tests import operations
from tests import own_data
from tests.data import test_scaling
from tests.data.images import test_unreadable
from tests.data.sources import test_labels
from tests.data.splits import test_groups
from vit_jax import data
from vit_jax import registry
from vit_jax.data.images import decode
from vit_jax.data.images import ops as ops_lib

# Each row of a table: the arguments of a call, and a part of its error.
SECTIONS = [
    ({'channels': 0}, 'channels must be at least 1'),
    ({'dtype': 'uint16'}, 'dtype uint16 needs value_range'),
    ({'value_range': [5, 5]}, 'value_range must be a lower and a higher'),
    ({'mean': [0.1, 0.2]}, 'each of the 3 channels'),
    ({'mean': 'measured'}, "mean and std must both be 'measured'"),
    ({'std': 0.0}, 'std must be above 0'),
    ({'prefetch': 0}, 'prefetch must be at least 1'),
    ({'mixup': -1.0}, 'mixup must be at least 0'),
    ({'resolution': 0}, 'size must be positive'),
    ({'channels': 13, 'train_ops': [{'op': 'vit_jax.data:Operation'}]},
     r'train_ops\[0\]: vit_jax.data:Operation needs 8-bit grey or RGB'),
    *(({'train_ops': [op]}, message) for op, message in (
        ({'op': 'resize', 'size': 20, 'shorter': 20}, 'one of size, shorter'),
        ({'op': 'resize', 'antialias': False, 'method': 'bicubic'},
         "nearest or bilinear; got 'bicubic'"),
        ({'op': 'flop'}, r"Unknown train_ops\[0\].op 'flop'. Did .* 'flip'"),
        ({'size': 3}, 'needs the key op'),
        ({'op': 'inception_crop', 'area': (0, 2)}, '0 < low <= high <= 1'),
        ({'op': 'flip', 'probability': 3}, 'probability must'))),
    ({'max_pixels': 0}, 'max_pixels must be at least 1 and at most 178,956,97'),
    ({'num_examples': 0}, 'num_examples must be at least 1'),
    ({'fraction': 1.5}, 'fraction must be above 0 and at most 1'),
    ({'num_examples': 5, 'fraction': 0.5}, 'Give one of them')]
DIGITS = [
    *(({'split': split}, message) for split, message in (
        ('trian', "Did you mean 'train'"), ('train[', 'Cannot read the split'),
        ('train[:5000]', 'train 1,437'), ('train[7:7]', 'has no examples'),
        ('train[:1shard]', 'Use examples or percent'),
        ('all[:9]', r"'all\[:9\]' takes .*only percentages"))),
    ({'examples_per_class': 143}, 'of 3 classes .*0: 142'),
    ({'group': 'patient'}, 'digits has no groups: only your'),
    ({'holdout': 0.25}, r'data\.holdout describe')]
GOOD = hostile.good()
IMAGES = [
    (b'', 'not an image of a supported format'),
    (b'P2 9 9 255\n' + b'1 ' * 81, 'PNM in ASCII is not supported'),
    (b'\xff\x4f\xff\x51', 'JPEG 2000 is not supported. Convert'),
    (b'\0\0\0\x20ftypmif1\0\0\0\0mif1avif', 'AVIF is not supported'),
    (GOOD['png'][:-300] + b'\xff' * 300, 'not a readable image'),
    (hostile.png(60_000, 60_000), 'not a readable .* exceeds limit'),
    (hostile.png(9_000, 9_000), 'maximum is 67,108,864. Make it smaller; or'),
    (hostile.with_size(GOOD['jpeg'], 0, 5), 'not a readable image'),
    (GOOD['npy'].replace(b'(24, 33, 3)', b'(24000000, 33000, 3)')[:-40],
     'not a readable .npy file'),
    (GOOD['npy'].replace(b'|u1', b'|O8'), 'not a readable .npy file'),
    (hostile.npy(np.zeros((0, 5), np.uint8)), 'it has 0 x 5 pixels'),
    (hostile.npy(np.zeros((2**14, 2**13), np.uint8)), 'Make it smaller')]


def change_image(_, section, size):
  (op,) = operations.build(section)
  ops_lib.to_array(op(operations.noise(*size), operations.rng()), size=(24, 32))


OPERATIONS = [
    ({'op': 'resize', 'shorter': 224}, (60_000, 1),
     '60000 x 1 .* 13,440,000 x 224'),
    ({'op': 'central_crop', 'size': 50}, (40, 60),
     '50 x 50 does not fit into .* 40 x 60.*"shorter": 50'),
    ({'op': 'flip'}, (40, 60), '40 x 60.*24 x 32')]


def read_files(_, batches, section, files):
  dataset = data.Dataset(name='files', split='train', num_classes=20,
                         source=test_unreadable.Files(**files))
  config = data.parse({'resolution': 9, **section})
  list(itertools.islice(batches(config, dataset, batch_size=10), 2))


TRAIN = functools.partial(data.train_batches, seed=0)
SKIP = {'unreadable': 'skip'}
UNREADABLE = [
    *((batches, {}, {}, r'files.*\((03|04|11|19)\): not a read.* with '
       '--config.data.unreadable=skip .* few-shot .*; `data check`')
      for batches in (data.eval_batches, TRAIN)),
    # Errors of disks and memory are never skipped.
    *((TRAIN, SKIP, {'bad': (), 'error': error}, f'files.*05.*{error}')
      for error in (OSError('of a disk'), MemoryError('of a machine'))),
    (TRAIN, SKIP, {'bad': (*range(20),)}, '19 examples after it are unreada')]


def read_labels(_, read, *labels):
  read(dataclasses.replace(
      in_memory.RARE, multi_label=isinstance(labels[1], tuple),
      source=in_memory.Arrays(in_memory.RARE_IMAGES, labels)))


def evaluate(dataset):
  list(data.eval_batches(
      data.parse({'resolution': 2, 'max_labels': 2}), dataset, batch_size=2))


COUNT = functools.partial(data.class_labels, setting='data.sampling')
LABELS = [
    # Mixup would turn an invalid class into a row of zeros.
    (evaluate, (0,), (0, 1, 2),
     r'Example 1 .*\(image 1\).*3 labels.*max_labels is 2.*=3'),
    (evaluate, (0,), (0, -1), r'Example 1 .*image 1.*the label -1.* 4 classes'),
    *((evaluate, 0, label, f'the label {label}') for label in (4, -1, 2**40)),
    (evaluate, (0,), (4,), 'the label 4'),
    (COUNT, [0], [1, 2], 'data.sampling needs one class per image'),
    (COUNT, 0, 4, "Example 1 of rare, split 'train' .image 1.*the class 4")]


def read_targets(_, section, labels=test_scaling.LABELS):
  dataset = dataclasses.replace(test_scaling.DATASET, source=in_memory.Arrays(
      test_scaling.IMAGES, labels))
  config = data.measured(test_scaling.parsed(**section), dataset)
  data.prepare(config, dataset)


TARGETS = [
    ({}, np.full((20, 2), 7.0), "'light' is missing or equal in all exa"),
    ({}, np.full((20, 2), np.inf),
     r"0 of lamps, split 'train' .image 0.: its label \[inf, inf\] is not fin"),
    ({}, np.ones((20, 3)), r'shape \(3,\), but .* 2 targets: light, dark'),
    ({'target_mean': [1], 'target_std': [1, 2]}, r'\(1.0,\) and \(1.0'),
    ({'target_mean': [1], 'target_std': [0]}, 'must be above 0'),
    ({'target_mean': [1], 'target_std': [1]}, 'but there are 2 targe'),
    ({'cutmix': 1.0}, 'data.cutmix blends labels by area')]
CELLS = [
    (['cat', '', 'dog'], "1 of 3 cells in column 'label' of a.csv .*"
     'row 2: it is empty, but the name of a class'),
    (['0', '-1', '1', '-1'], "2 of 4 cells .*row 2: '-1'"),
    (['1', '2', '1_000'], 'regression', "1 of 3 .*row 3: '1_000', but a fini"),
    (['nan', 'inf'], 'regression', "2 of 2 .*row 1: 'nan', but a finite numb"),
    (['', ''], 'regression', "column 'label' of a.csv is empty"),
    ({'x': ['1', '2'], 'y': ['a', 'b']}, "'x' .*row 2: '2', but 0 or 1"),
    ({'x': [1, 0], 'y': [1, 1]}, "row 1 has a 1 in 2 of column 'x'"),
    (['a', 'a'], 'has 2 rows, all of the class a. A classifier needs two'),
    ([1.5, 2.5], 'single', 'row 1: 1.5, but the name of a class'),
    ([['a'], ['b']], 'single', 'holds lists.*--config.data.target=multi'),
    (['a', 'b'], 'multi', r"holds text. .*--config.data.table.separator='\|'")]
DECLARED = [(cells, 'row 2: .*one of 2 classes .* cat, dog') for cells in (
    [0, 2], *(['cat', cell] for cell in ('7', 'bat', None)))]


def folders(*names):
  return lambda root: own_data.write_folders(root, *names)


def files(*names):
  return lambda root: own_data.write(root, *names)


FOLDERS = [
    (folders('a', 'b'), {'table.label': 'x'}, 'data.table describes the'),
    (folders('a', 'b'), {'target': 'multi'}, 'has no class folders'),
    (folders('a', 'b'), {'group': '(P'}, 'regular expression: .*one group'),
    (folders('a', 'b'), {'group': 'P'}, 'has 0 groups in parentheses'),
    (folders('a', 'b'), {'group': 'b/(.)'},
     r'finds no group in \d of \d images: a/0.png'),
    (folders('train', 'test', 'extra'), {'target': 'none'},
     r'name a split \(test, train\), but 3 do not: extra/'),
    (files('train/cat/a.png', 'train/dog/b.png', 'test/cat/c.png',
           'test/Dog/d.png'),
     '1 of the classes .* only in other splits: Dog. .*lower case'),
    (files('train/cat/x.heic', 'test/cat/0.png', 'test/dog/0.png'),
     r'train has no images: no image that can be read in train/cat \(1 .heic'),
    (folders('train/cat'), "single class folder 'cat'"),
    (files('train/1.png', 'test/1.png'),
     'no class folders; it holds test/, train/'),
    (folders('train/a', 'train/b', 'valid/a'),
     'no class folders; it holds train/, valid/'),
    (folders('tea', os.fsdecode(b'caf\xe9')),
     r"'caf\\udce9' is not Unicode text. Rename the file."),
    (folders('train/a', 'train/b', 'test/a', 'test/b'), {'holdout': 0.25},
     'is 0.25, but .*test, train'),
    (folders('a', 'b'), {'val_source': 'digits'},
     'The validation data has other classes than'),
    *[(folders('a', 'b'), {'val_source': 'shapes'},
       'of the kind multi, but .* single')] * leaves.has(
           registry.SOURCES['shapes']),
    (folders('a', 'b'), {'val_source': 'digits', 'holdout': 0.2},
     'val_source and holdout exclude each other'),
    (files('a.tar', 'b.parquet'),
     r'holds \S*/b.parquet and \S*/a.tar. Name those to use'),
    (lambda root: [own_data.write_tar(
        root / f'{name}.tar', [(f'{name}.png', ''), (f'{name}.cls', '')])
                   for name in ('train-0', 'b')],
     r'split \(train\), but 1 do not: \S*b.tar')]
FILES = [
    ('a.tar.gz', 'a.tar.gz', '1 files of type .gz. Expected a folder, one'),
    ('*.csv', 'a.csv', 'b.csv', '2 files of type .csv. .*data.val_source'),
    ('x.csv', 'x.csv does not exist.*a table'),
    ('*.tar', r'No file matches .*\*.tar')]
TABLES = [
    (['path,label', '1.png,"a', '2.png,b', '3.png,a"', '4.png,b'],
     'has a line break'),
    (['path,label', '1.png,a', '70.png,b', '80.png,a'],
     r'2 of 3 images of .*labels.csv do not exist .*row 2.: '
     r'\S*/70.png, \S*/80.png'),
    (['path,label', ',a', '1.png,b'],
     '1 of 2 images of .* do not exist .*row 1'),
    (['path,label'], 'holds no rows'), ([], 'holds no rows'),
    (['path,label', '1.png,a,b'], 'Line 2 of .* has 3 cells.*double quotes'),
    (['path,label', '1.png,a', '2.png,"b', '3.png,a'],
     'begins at line 3 is not valid CSV'),
    (['path,path,label'], "two columns of one name: .'path'"),
    (['path,label', '1.png,cat', '2.png,dog', '1.png,dog'],
     "Rows 1 and 3 .* 1.png, but label is 'cat' and 'dog'.*target=multi"),
    (['path,label,split', '1.png,a,train', '1.png,a,test'],
     "Rows 1 and 2 .* same image, 1.png, but split is 'train' and 'test'"),
    (['path,label,split', '1.png,a,train', '2.png,b,'],
     '1 of 2 rows of .* have no split .*row 2'),
    (['path,label,split', '1.png,a,test', '2.png,b,val'], 'no training split'),
    (['path,label,split', '1.png,a,train', '2.png,b,test', '3.png,a,train'],
     '1 of the classes of .* have no image in train, only in other splits: b'),
    (['path,label,split', '1.png,,train', '2.png,b,test'],
     'training images of .* have no labels'),
    (['path,label,split', '1.png,,test', '2.png,a,train', '3.png,,train'],
     '1 of 2 cells .*row 3: it is empty'),
    (['path,label', '1.png,a', '2.png,b'], {'table.label': 'labels'},
     "'labels'. Did you mean 'label'"),
    (['path,label', '1.png,a', '2.png,b'], {'group': 'label'},
     "'label', the label column"),
    (['path,label,of', '1.png,a,7', '2.png,b, '], {'group': 'of'},
     "1 of 2 rows of .* no group in 'of' .*the first: row 2"),
    (['path,label,of', '1.png,a,7'], {'group': 'off'}, "'off'. Did you mean"),
    (['{"path": "1.png"}', '[1]'], 'Line 2 of .* must be an object'),
    (['{"path": "1.png"}', '{"path"}'], 'Line 2 of .* is not JSON'),
    (['{"label": 1}', '{"label": "a"}'],
     "'label' of .* values of several types"),
    (['{"path": "1.png", "lable": 1}'], 'path, lable, but .*label were exp'),
    # A list of flags is no list of classes.
    ([f'{{"path": "{i}.png", "label": [0, {i}, 1]}}' for i in (1, 2, 3)],
     {'target': 'multi'}, "Row 1 .* has the label '1' twice")]


def open_table(root, lines, flags=None):
  own_data.write(root, '1.png', '2.png', '3.png')
  table = root / ('labels.jsonl' if '{' in ''.join(lines) else 'labels.csv')
  table.write_text('\n'.join(lines) + '\n')
  own_data.open_splits(table, **flags or {})


def open_one_class(root):
  own_data.write_folders(root, 'one/a', 'two/a', 'two/b')
  own_data.open_splits(root / 'one', val_source=f'{root}/two')


def open_missing_label(root):
  own_data.write(root, '0.png', '1.png')
  pq.write_table(pa.table({'path': ['0.png', '1.png'], 'label': pa.array(
      ['a', None]).dictionary_encode()}), root / 'x.parquet')
  own_data.open_path(root / 'x.parquet')


@pytest.mark.parametrize(('call', 'arguments', 'message'), [
    (call, arguments, message) for call, rows in (
        (lambda _, section: data.parse(section), SECTIONS),
        (lambda _, section: data.open_dataset(
            data.parse({'source': 'digits', **section})), DIGITS),
        (lambda _, content: decode.decode(content, channels=3), IMAGES),
        (change_image, OPERATIONS), (read_files, UNREADABLE),
        (read_labels, LABELS), (read_targets, TARGETS),
        (lambda _, *cells: test_labels.parse(*cells), CELLS),
        (lambda _, cells: test_labels.parse(
            cells, class_names=('cat', 'dog')), DECLARED),
        (lambda root, write, flags=(): (
            write(root), own_data.open_splits(root, **dict(flags))), FOLDERS),
        (lambda root, name, *written: (
            own_data.write(root, *written),
            own_data.open_splits(root / name)), FILES),
        (open_table, TABLES),
        (open_one_class, [['has a single class; a classifier']]),
        (open_missing_label, [['row 2: it is empty']]),
        (lambda root: test_groups.open_split(*test_groups.write_csv(
            root), 'train[1:2]'), [['no examples.*have whole groups']]),
        (lambda _, name: data.open_dataset(
            data.parse({'source': name, 'data_dir': 'x'})),
         [['cifar1', "(?s)Did you mean 'cifar10'.*tfds build cifar1 "
           '--data_dir=x --file_format=array_record'],
          ['sun397/tfds:4.*.*', r'directory\)\. Give']]),
        (lambda _: TRAIN(data.parse({}), in_memory.RARE, batch_size=6,
                         num_shards=4), [['6 does not divide into 4 shards']]),
    ) for *arguments, message in rows])
def test_an_error_names_its_cause(tmp_path, call, arguments, message):
  with pytest.raises(ValueError, match=message):
    call(tmp_path, *arguments)
