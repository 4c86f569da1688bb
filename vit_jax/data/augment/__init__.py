"""Image augmentation on the host (ops) and on the device (mixup)."""
