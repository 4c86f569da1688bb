"""More optimizers: Muon, Adafactor, schedule-free AdamW, those of Optax."""
