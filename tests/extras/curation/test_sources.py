"""Folders without labels or images are checked and prepared."""

import json

from tests import own_data
from tests import pictures
from vit_jax import __main__ as main
from vit_jax import data
from vit_jax.extras.curation import check as check_lib
from vit_jax.extras.curation import scan as scan_lib
from vit_jax.extras.curation import similarity


def test_a_check_and_prepared_shards_have_no_labels(tmp_path):
  source = tmp_path / 'photos'
  for i in range(20):
    pictures.save(source / f'{i}.png', pictures.picture(i, side=16))
  config = data.parse({'source': str(source)})
  report = check_lib.check(
      scan_lib.prepare(config), thresholds=similarity.Thresholds(),
      features='', advance=lambda _: ())
  assert 'Labels are not checked: ' in report.description
  assert report.label_kind == 'none' and not report.classes
  assert report.labels_not_compared == 'there are no labels'
  assert main.main(['data', 'prepare', f'--source={source}', '--name=mine',
                    f'--to={tmp_path}/to', '--runner=local']) == 0
  features = json.loads(
      (tmp_path / 'to/mine/1.0.0/features.json').read_text())
  assert 'label' not in features['featuresDict']['features']
  prepared = data.open_dataset(data.parse({
      'source': 'mine', 'data_dir': f'{tmp_path}/to'}), split='all')
  assert prepared.is_unlabelled and len(prepared) == 20
  assert 'mine has no labels' in prepared.no_labels


def test_a_check_names_class_folders_without_images(tmp_path):
  for i, name in enumerate('abab'):
    pictures.save(tmp_path / f'{name}/{i}.png', pictures.picture(i, side=16))
  own_data.write(tmp_path / 'c', *(f'{i}.HEIC' for i in range(12)))
  report = check_lib.check(
      scan_lib.prepare(data.parse({'source': str(tmp_path)})),
      thresholds=similarity.Thresholds(), features='', advance=lambda _: None)
  finding, = (one for one in report.findings if one.kind == 'without_images')
  assert finding.count == 1 and finding.harmful
  assert finding.text.endswith('c (12 .heic)')
