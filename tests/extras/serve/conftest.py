"""A trained segmentation model."""

from tests.extras.segmentation.test_run import scenes  # noqa: F401
from tests.extras.segmentation.test_run import trained  # noqa: F401
