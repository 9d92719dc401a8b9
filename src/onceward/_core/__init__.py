"""
The pure part: every rule, no I/O, no clock, no chance.

Nothing in here imports anything of ours outside this package, and nothing in here blocks, waits,
rolls dice or tells time. `tests/house/test_layers.py` holds it to that.
"""
