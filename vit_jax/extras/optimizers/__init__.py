"""More optimizers: Adafactor, schedule-free AdamW, and those of Optax."""
