"""Random logits of a classifier, and labels that they often agree with."""

import numpy as np

_RNG = np.random.default_rng(0)
EXAMPLES, CLASSES = 37, 6
LABELS = _RNG.integers(0, CLASSES - 1, EXAMPLES)  # None of the last class.
LOGITS = _RNG.normal(size=(EXAMPLES, CLASSES)).astype(np.float32)
LOGITS[np.arange(EXAMPLES), LABELS] += 1
KHOT = (_RNG.random((EXAMPLES, CLASSES)) < 0.3).astype(np.float32)
