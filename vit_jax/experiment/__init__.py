"""From a config and devices to a wired experiment."""
