"""Weights of other codebases into our models and out again, strictly.

    file ─▶ headers ─▶ family ─▶ arrays ─▶ model section ─▶ compared with it

The content says what a file is, never its name. What names and shapes do not
tell comes from a config.json, else from the table of sizes; what is given by
hand wins. Then the model is built, and every parameter must be there, in its
shape, and nothing else: or there is an error, and no result.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax

from vit_jax import models
from vit_jax import tree
from vit_jax.checkpoints import hints as hints_lib
from vit_jax.checkpoints import inference
from vit_jax.checkpoints import matching
from vit_jax.checkpoints import opening
from vit_jax.checkpoints import statement
from vit_jax.interop import preprocess as preprocess_lib

open_weights = opening.open_weights
infer = inference.infer

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
  preprocess: preprocess_lib.Preprocess
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
    overrides: keys of the section `model` and of `Preprocess`; they win over
      what is inferred.

  Raises:
    ValueError: if the file is damaged, of no family that is known, or does not
      hold exactly the parameters of the model.
  """
  given = dict(overrides or {})
  preprocess = {name: given.pop(name) for name in preprocess_lib.NAMES
                if name in given}
  if isinstance(preprocess.get('resolution'), int):
    preprocess['resolution'] = (preprocess['resolution'],) * 2
  opened = open_weights(pathlib.Path(path))
  family, prefix, matches, left_out = matching.recognise(opened)
  matches, unused = matching.without_pooler(family, matches)
  left_out += [prefix + name for name in unused]
  hints = hints_lib.read(pathlib.Path(path), opened, matches)
  heads = inference.heads(opened, matches, prefix, {**hints.section, **given})
  params = matching.read(opened, matches, prefix, heads)
  resolution = (preprocess.get('resolution') or hints.resolution or
                hints.preprocess.get('resolution'))
  section, grid = infer(
      params, family, hints={**hints.section, **given},
      resolution=resolution and tuple(resolution))
  params = inference.complete(params, section)
  config = models.parse({**section, **given})
  resolution = inference.resolution_of(config, grid) if grid else (
      resolution or (DEFAULT_SIDE,) * 2)
  check(config, params, resolution, source=opened.path,
        theirs={match.ours: match.theirs[0] for match in matches})
  done = {**hints.preprocess, **preprocess}
  if hints.resolution is None:  # Else images are known apart from positions.
    done = {**done, 'resolution': tuple(resolution), **preprocess}
  return Loaded(
      config=config, params=tree.unflatten(params),
      resolution=tuple(resolution),  # type: ignore[arg-type]
      preprocess=preprocess_lib.parse(done),
      positions=hints.positions or family.positions,
      family=family.name,
      statement=statement.state(
          opened, family, prefix, config, params, tuple(resolution), hints,
          given, stated={**hints.preprocess, **preprocess}),
      report=statement.report(opened, matches, params, left_out))


def check(
    config: models.ModelConfig, params: Mapping[str, Any],
    resolution: Sequence[int], *, source: str,
    theirs: Mapping[str, str] | None = None,
) -> None:
  """Raises if parameters, by our names, are not exactly the model's.

  Raises:
    ValueError: with expected and found shapes side by side.
  """
  expected = abstract_params(config, resolution)
  difference = tree.differences(expected, tree.unflatten(params))
  if difference:
    names = theirs or {}
    lines = []
    for line in difference:
      name = line.split(':')[0]
      lines.append(f'{names[name]} -> {line}' if name in names else line)
    raise ValueError(
        f'{source} does not fit the model:\n' + statement.indented(lines)
        + '\nIf the model was inferred wrongly, say what it is: '
        'load(path, depth=..., num_classes=..., pooling=...).')


def abstract_params(
    config: models.ModelConfig, resolution: Sequence[int],
) -> Any:
  """Returns the shapes of a model's parameters, as a nested dict."""
  model = models.build(config, num_classes=config.num_classes)
  images = jax.ShapeDtypeStruct((1, *resolution, 3), 'float32')
  return nn.unbox(jax.eval_shape(
      lambda: models.init(model, jax.random.key(0), images)))
