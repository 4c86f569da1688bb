"""What a training step needs and could reach, found by compiling it."""
