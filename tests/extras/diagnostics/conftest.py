"""The toy model and checkpoints of the tests of the trunk."""

from tests.evals.conftest import toy
from tests.inference.conftest import write

__all__ = ['toy', 'write']
