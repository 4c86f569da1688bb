"""Optimizers: section `optimizer` of a config.

    config = optim.parse({'name': 'adam', 'learning_rate': 1e-3, ...})
    optimizer = optim.build(config, params, total_steps=..., to_steps=...)
"""

from vit_jax.optim.config import AdafactorConfig
from vit_jax.optim.config import AdamConfig
from vit_jax.optim.config import Config
from vit_jax.optim.config import MuonConfig
from vit_jax.optim.config import OptaxConfig
from vit_jax.optim.config import parse
from vit_jax.optim.config import SgdConfig
from vit_jax.optim.optimizers import build
from vit_jax.optim.optimizers import Optimizer
from vit_jax.optim.schedules import Schedule
from vit_jax.optim.schedules import ScheduleConfig

__all__ = [
    'AdafactorConfig', 'AdamConfig', 'Config', 'MuonConfig', 'OptaxConfig',
    'Optimizer', 'Schedule', 'ScheduleConfig', 'SgdConfig', 'build', 'parse',
]
