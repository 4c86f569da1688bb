"""A trained segmentation model."""

from tests.run.test_segmentation import scenes  # noqa: F401
from tests.run.test_segmentation import trained  # noqa: F401
