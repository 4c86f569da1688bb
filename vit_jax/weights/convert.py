"""Weights of other codebases into our models and out again, strictly.

    file ─▶ headers ─▶ family ─▶ arrays ─▶ model section ─▶ compared with it

The content says what a file is, never its name. What names and shapes do not
tell comes from the file's own metadata, else from a config.json, else from the
table of sizes; what is given by hand wins. None of them may deny what the
arrays tell. Then the model is built, and every parameter must be there, in its
shape, and nothing else: or there is an error, and no result.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax

from vit_jax import models
from vit_jax import tree
from vit_jax.weights import hints as hints_lib
from vit_jax.weights import infer_architecture
from vit_jax.weights import load_report
from vit_jax.weights import matching
from vit_jax.weights import open_files
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import sizes
from vit_jax.weights.configs import preprocessing as preprocessing_lib

DEFAULT_SIDE = 224  # Pixels, where nothing says for what size a model is.


@dataclasses.dataclass(frozen=True)
class Loaded:
  """A model read from a file of another codebase.

  Attributes:
    config: of the model.
    params: nested dict of NumPy arrays.
    resolution: height and width that its positions are for.
    preprocess: what images go through.
    positions: how its origin resizes position embeddings.
    family: what the file was recognised as.
    statement: lines on what was found and inferred.
    report: a line for each parameter, and one for each array left out.
  """
  config: models.ModelConfig
  params: Any
  resolution: tuple[int, int]
  preprocess: preprocessing_lib.Preprocess
  positions: str
  family: str
  statement: tuple[str, ...]
  report: tuple[str, ...]


def read(
    path: str | os.PathLike, overrides: Mapping[str, Any] | None = None,
) -> Loaded:
  """Reads the weights of another codebase.

  Args:
    path: a file, or a folder of one with its config.json.
    overrides: keys of the section `model` and of `Preprocess`, which win over
      what is inferred; and `prefix`, of the names of the parameters, where a
      file has two copies of them.

  Raises:
    ValueError: if the file is damaged, of no family that is known, or does not
      hold exactly the parameters of the model.
  """
  path = pathlib.Path(path)
  given = overrides_lib.parse(overrides or {})
  found = matching.find(open_files.open_weights(path), prefix=given.prefix)
  source, family = found.opened.path, found.family
  params = matching.read(found)
  told = infer_architecture.tell(params, family, heads_apart=found.heads_apart)
  different = hints_lib.contradictions(given.claims, told, {})
  if different:
    raise ValueError(
        f'{source} does not hold the model that was said:\n'
        + load_report.indented(different))
  hints = hints_lib.find(path, found, told, given.items())
  told['embedded'] = hints.embedded
  known = {**hints.section, **given.claims, **given.model}
  if told['name'] == 'vit':
    told['num_heads'] = infer_architecture.heads(told, known, source=source)
    params = matching.split_heads(params, found, told['num_heads'])
  sizes.demand(told, family, known=known, source=source)
  section, grid = infer_architecture.infer(
      told, family, known={**hints.section, **given.model},
      resolution=_of_positions(told, given, hints))
  if grid:
    params = matching.fold_register_positions(
        params, told['positions'] - math.prod(grid))
  params = infer_architecture.complete(params, told)
  config = models.parse(section)
  resolution = infer_architecture.resolution_of(config, grid) if grid else (
      given.preprocess.get('resolution') or hints.resolution
      or hints.preprocess.get('resolution') or (DEFAULT_SIDE,) * 2)
  check(config, params, resolution, source=source,
        theirs={match.ours: match.theirs[0] for match in found.matches})
  return Loaded(
      config=config, params=tree.unflatten(params), resolution=resolution,
      preprocess=_preprocess(config, resolution, given, hints),
      positions=hints.positions or family.positions, family=family.name,
      statement=_statement(found, config, params, resolution, given, hints),
      report=load_report.report(
          found.opened.headers, found.matches, params, found.left_out))


def _of_positions(
    told: Mapping[str, Any], given: overrides_lib.Given,
    hints: hints_lib.Hints,
) -> tuple[int, int] | None:
  """Returns for which images the positions are, if anything says so."""
  said = [resolution for resolution in (
      given.preprocess.get('resolution'), hints.resolution,
      hints.preprocess.get('resolution')) if resolution]
  fitting = [resolution for resolution in said
             if told.get('positions') and infer_architecture.fits(told, resolution)]
  return next(iter((*fitting, *said)), None)


def _preprocess(
    config: models.ModelConfig, resolution: tuple[int, int],
    given: overrides_lib.Given, hints: hints_lib.Hints,
) -> preprocessing_lib.Preprocess:
  """Returns what images go through.

  Raises:
    ValueError: if it is not for images of the model, or names other classes.
  """
  result = preprocessing_lib.parse({
      'resolution': resolution, **hints.preprocess, **given.preprocess})
  if 'resolution' not in given.preprocess and hints.source != hints_lib.OWN:
    result = dataclasses.replace(result, resolution=resolution)
  check_preprocess(config, result)
  return result


def check_preprocess(
    config: models.ModelConfig, preprocess: preprocessing_lib.Preprocess,
) -> None:
  """Raises if what images go through is not for the model.

  Raises:
    ValueError: if images do not divide into patches, or if there are names for
      some classes alone.
  """
  try:
    models.grid(config, preprocess.resolution)
  except ValueError as error:
    raise ValueError(f'resolution: {error}') from error
  labels = len(preprocess.labels)
  if labels and labels != config.num_classes:
    raise ValueError(
        f'There are {labels} labels, but the head has {config.num_classes} '
        'classes. Give a name for each, or none.')


def _statement(
    found: matching.Found, config: models.ModelConfig,
    params: Mapping[str, Any], resolution: tuple[int, int],
    given: overrides_lib.Given, hints: hints_lib.Hints,
) -> tuple[str, ...]:
  """Returns lines on what was found and inferred."""
  opened = found.opened
  lines = [f'inferred: {load_report.model_line(config, resolution)}']
  if not config.num_classes:
    lines.append('no head in the file: 0 classes, logits are empty')
  if hints.source:
    lines.append(f'with {hints.source}: ' + (', '.join(
        f'{k}={v}' for k, v in hints.shown.items()) or 'preprocessing'))
  lines += hints.notes
  if given.items():
    lines.append('given: ' + ', '.join(
        f'{k}={v}' for k, v in given.items().items()))
  lines += load_report.arrays_lines(
      opened.headers, [found.prefix + name for match in found.matches
                       for name in match.theirs], found.left_out)
  if not {'mean', 'std'} & {*hints.preprocess, *given.preprocess}:
    lines.append(
        'assumed: images in [-1, 1] (mean 0.5, std 0.5), for the file does '
        'not say; DeiT has another mean and std')
  under = f', under {found.prefix}' if found.prefix else ''
  return (f'{opened.path}: {found.family.label} ({opened.format}{under}), '
          f'{load_report.count(params)}', *(f'  {line}' for line in lines))


def check(
    config: models.ModelConfig, params: Mapping[str, Any],
    resolution: Sequence[int], *, source: str,
    theirs: Mapping[str, str] | None = None, channels: int = 3,
) -> None:
  """Raises if parameters, by our names, are not exactly the model's.

  Raises:
    ValueError: with expected and found shapes side by side.
  """
  expected = abstract_params(config, resolution, channels=channels)
  difference = tree.differences(expected, tree.unflatten(params))
  if difference:
    names = theirs or {}
    lines = []
    for line in difference:
      name = line.split(':')[0]
      lines.append(f'{names[name]} -> {line}' if name in names else line)
    raise ValueError(
        f'{source} does not fit the model:\n' + load_report.indented(lines)
        + '\nIf the model was inferred wrongly, say what it is: '
        'load(path, depth=..., num_classes=..., pooling=...).')


def abstract_params(
    config: models.ModelConfig, resolution: Sequence[int], *,
    channels: int = 3,
) -> Any:
  """Returns the shapes of a model's parameters, as a nested dict."""
  # Which are the same wherever it is to run, and without what runs it there.
  model = models.build(
      models.without_fused_kernels(config), num_classes=config.num_classes)
  images = jax.ShapeDtypeStruct((1, *resolution, channels), 'float32')
  return nn.unbox(jax.eval_shape(
      lambda: models.init(model, jax.random.key(0), images)))
