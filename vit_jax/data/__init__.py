"""Input pipeline: datasets, image operations and batches.

`parse` a config section, `open_dataset`, iterate `train_batches` or
`eval_batches`, and `prepare` each batch on the device; see `pipeline`.
"""

from vit_jax.data.config import DataConfig
from vit_jax.data.config import parse
from vit_jax.data.dataset import Dataset
from vit_jax.data.dataset import match_classes
from vit_jax.data.dataset import with_classes
from vit_jax.data.images.ops import Operation
from vit_jax.data.images.unreadable import UnreadableCounter
from vit_jax.data.images.unreadable import UnreadableLog
from vit_jax.data.mixture import describe as describe_mixture
from vit_jax.data.mixture import images_seen
from vit_jax.data.on_device import prepare
from vit_jax.data.open import open_dataset
from vit_jax.data.pipeline import abstract_batch
from vit_jax.data.pipeline import eval_batches
from vit_jax.data.pipeline import train_batches
from vit_jax.data.scaling import check_pixels
from vit_jax.data.scaling import inherit
from vit_jax.data.scaling import measured
from vit_jax.data.scaling import scale_notes
from vit_jax.data.sources.protocol import DatasetSplits
from vit_jax.data.sources.protocol import Metadata
from vit_jax.data.sources.protocol import Source
from vit_jax.data.splits.class_sampling import class_labels
