"""How fast it is, in ratios: against the raw store and against peers. `python -m bench --help`."""
