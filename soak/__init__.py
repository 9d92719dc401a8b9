"""Clients that retry while what they call is killed: nothing lost, nothing doubled. `python -m soak --help`."""
