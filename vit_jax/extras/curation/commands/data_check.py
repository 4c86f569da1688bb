"""Reports problems of a dataset: `data check`."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax.commands import arguments
from vit_jax.extras.curation.commands import flags

with epy.lazy_imports():
  from vit_jax.extras.curation import bit_depth
  from vit_jax.extras.curation import check as check_lib
  from vit_jax.extras.curation import output
  from vit_jax.extras.curation import scan as scan_lib
  from vit_jax.extras.curation import selection
  from vit_jax.extras.curation import similarity
  from vit_jax.inference import image_files
  from vit_jax.inference import load as load_lib


def add_to(tasks: argparse._SubParsersAction) -> None:
  """Adds the task with its flags."""
  parser = tasks.add_parser(
      'check', help='report problems of a dataset, without changing it',
      description='Reads every example of all splits once and reports '
      'unreadable images, duplicates, suspicious labels, classes, sizes and '
      'formats.')
  flags.add_data(parser)
  parser.add_argument(
      '--html', default='', metavar='PATH',
      help='write a page with thumbnails')
  parser.add_argument(
      '--strict', action='store_true',
      help='exit with status 1 if images are unreadable or duplicated across '
      'splits, or a class folder has no images')
  parser.add_argument(
      '--max-examples', type=int, default=0, metavar='N',
      help='check a subset of this size, chosen by a hash of the keys; 0 '
      'checks all (default: %(default)s)')
  parser.add_argument(
      '--model', default='photos', metavar='PATH',
      help='find neighbours by the features of this model, as accepted by the '
      'features command (default: %(default)s, which is part of the package)')
  arguments.add(parser, '--which')
  flags.add(parser, '--max-distance', '--min-similarity')
  parser.set_defaults(run_task=run)


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the task; returns the exit status and the results."""
  fields.check_range(args, 'max_examples')
  thresholds = similarity.Thresholds(args.max_distance, args.min_similarity)
  config = selection.all_examples(flags.data_overrides(args))
  model = load_lib.load(args.model, which=args.which, log=None)
  request = scan_lib.prepare(
      config, max_examples=args.max_examples,
      embed=functools.partial(model.features, batch_size=64),
      min_side=2 * max(model.preprocess.resolution))
  request = dataclasses.replace(request, description='\n'.join(filter(None, [
      request.description, bit_depth.note(config, request.examples)])))
  with image_files.ReadProgress(len(request.examples)) as reading:
    report = check_lib.check(
        request, thresholds=thresholds, features=args.model,
        advance=reading.advance)
  output.show(report)
  if args.html:
    with image_files.ignore_pillow_warnings():
      output.write_report(report, request, args.html)
    print(f'Wrote {args.html}')
  return int(args.strict and report.harmful), report.to_json()
