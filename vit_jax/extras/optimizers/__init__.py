"""More optimizers, and learning rates by layer.

  muon, adafactor, schedule_free   records of `optimizer.name`
  of_optax                         the same for any optimizer of Optax
  layer_decay                      `optimizer.layer_decay` and `frozen_layers`
"""
