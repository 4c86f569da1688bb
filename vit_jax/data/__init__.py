"""The input: data sets, image operations, batches.

`parse` a section, `open_dataset`, iterate `train_batches` or `eval_batches`,
and `prepare` each batch on the device. `pipeline` says how they hang together.
"""

from vit_jax.data.config import DataConfig
from vit_jax.data.config import parse
from vit_jax.data.datasets import DATASETS
from vit_jax.data.measuring import measured
from vit_jax.data.opening import check_training
from vit_jax.data.opening import class_labels
from vit_jax.data.opening import Dataset
from vit_jax.data.opening import draw_per_class
from vit_jax.data.opening import open_dataset
from vit_jax.data.pipeline import abstract_batch
from vit_jax.data.pipeline import eval_batches
from vit_jax.data.pipeline import prepare
from vit_jax.data.pipeline import train_batches
from vit_jax.data.real import with_real_labels
from vit_jax.data.shapes import ShapesConfig
from vit_jax.data.sources import UnknownSizes
from vit_jax.data.splits import TooFewExamples
from vit_jax.data.transforms import OPS
from vit_jax.data.unreadable import allowed as allowed_unreadable
from vit_jax.data.unreadable import Log as UnreadableLog
from vit_jax.data.unreadable import Tally

__all__ = [
    'DATASETS',
    'OPS',
    'DataConfig',
    'Dataset',
    'ShapesConfig',
    'Tally',
    'TooFewExamples',
    'UnknownSizes',
    'UnreadableLog',
    'abstract_batch',
    'allowed_unreadable',
    'check_training',
    'class_labels',
    'draw_per_class',
    'eval_batches',
    'measured',
    'open_dataset',
    'parse',
    'prepare',
    'train_batches',
    'with_real_labels',
]
