"""Settings and limits of an export; imports no library."""

from collections.abc import Sequence
import dataclasses

from vit_jax.exceptions import UserError

SUFFIXES = {'jax': '.stablehlo', 'onnx': '.onnx'}
SERVER = ('image_file.py', 'preprocess.py', 'server.py', 'worker.py')
TOLERANCE = 1e-3
BATCH_SIZES = (1, 2, 5)
MAX_IMAGES, MAX_CALIBRATION = 32, 256
# Lost accuracy, and share of images of the same class, that are accepted.
MAX_LOSS, MIN_AGREEMENT = 0.01, 0.95


@dataclasses.dataclass(frozen=True)
class Settings:
  """The flags of an export.

  Attributes:
    output: new path to write.
    format: a key of `SUFFIXES`.
    server: whether the files of the example server are written next to it.
    quantize: 'int8' to quantise the exported file.
    calibrate: images that set the ranges of int8.
    float_nodes: names of matrix products that stay float32.
    accept_loss: whether int8 may lose more than the limits above.
  """
  output: str
  format: str
  server: bool = False
  quantize: str | None = None
  calibrate: Sequence[str] = ()
  float_nodes: Sequence[str] = ()
  accept_loss: bool = False

  def __post_init__(self):
    if not self.quantize:
      if self.calibrate or self.float_nodes or self.accept_loss:
        raise UserError('--calibrate, --float-nodes and --accept-loss need '
                        '--quantize=int8.')
      return
    if self.format != 'onnx':
      raise UserError(
          f'--quantize={self.quantize} needs --format=onnx, but it is '
          f'{self.format}.')
    if not self.calibrate:
      raise UserError(
          f'--quantize={self.quantize} needs images to measure the ranges of '
          'activations: --calibrate=FOLDER, such as of training images.')
