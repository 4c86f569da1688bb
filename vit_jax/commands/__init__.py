"""Commands of `main.py`: each module has `add_arguments` and `run`.

`run` returns the exit status and the results, which `--json` writes to a file.
"""
