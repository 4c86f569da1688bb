"""Optimizers: section `optimizer` of a config.

    config = optim.parse({'name': 'adam', 'learning_rate': 1e-3, ...})
    optimizer = optim.build(config, params, total_steps=..., to_steps=...)
"""

from vit_jax.optim.config import CommonConfig
from vit_jax.optim.config import config_type
from vit_jax.optim.config import parse
from vit_jax.optim.optimizers import build
from vit_jax.optim.optimizers import Optimizer
