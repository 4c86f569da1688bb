"""The toy model of the tests of the trunk's evaluators."""

from tests.evals.conftest import toy

__all__ = ['toy']
