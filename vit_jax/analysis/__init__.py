"""Pictures and figures of what a model learned, and of how."""
