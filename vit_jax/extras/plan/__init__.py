"""Memory, traffic and time bounds of a training step, from compiling it."""
