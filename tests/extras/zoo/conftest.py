"""The web server and the cache of the tests of weights."""

from tests.weights.conftest import cache  # noqa: F401
from tests.weights.conftest import cached_files  # noqa: F401
from tests.weights.conftest import site  # noqa: F401
