"""
The drill of a function of yours: it is really run, many times, killed at every line, and its effect is counted.

    watches          what is counted: rows, lines of a file, files of a folder, a number behind a URL
    target_child     one call of the function, in a process of its own, killed where it is told
    target_run       which calls are made, in which order
    target_proof     what must hold of their numbers

May import: `drill` and what it may import. Start reading with target_run.py.
"""
