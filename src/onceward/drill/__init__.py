"""
The drill: scripted proofs that retried work happens once, on a store of yours, each with its negative control.

    proof            what a proof is: a run, claims about its numbers, and how its control goes wrong
    proofs/          one small file for each of them
    bench            what a proof works with: store, scope, keys, tables; and tidying up after it
    effect_book      the outside world, in which effects are counted
    database         a table of its own in a SQLite or PostgreSQL database
    nursery          child processes that are killed: the side that asks. nursery_process: the side that forks
    sender           what a child does
    drill_run        runs proofs one after the other; the report
    bundle           the evidence as a document, its digest, and the verdict from its numbers
    target/          the same for a function of yours

May import the library and `testing`; never service, client or cli. Start reading with proof.py and proofs/retry.py.
"""
