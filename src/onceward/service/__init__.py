"""
The parts of `onceward serve`. Each is a package of its own that imports no other; the command puts them together.
"""
