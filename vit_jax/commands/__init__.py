"""Commands of `main.py`: each module has `add_arguments` and `run`."""
