"""Operations, memory, traffic and time bounds of a training step."""
