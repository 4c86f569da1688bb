"""Speed of a training step, compared with the peak of its devices."""
