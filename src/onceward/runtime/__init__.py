"""
What touches the outside world on behalf of the rules: time, chance, processes, and the loops that drive flows.

    environment   the one door for clock, sleep and randomness; a test replaces it, and time stands still
    flow_driver   the loops that perform what a flow yields, blocking and awaiting; start reading here
    processes     which process this is, and whether another one lives
    failpoints    the named places where a test may crash, pause or fail a process

It imports `_core` and the standard library. Everything else of ours may import it.
"""
