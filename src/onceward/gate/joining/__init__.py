"""
Joining the caller's own transaction: one small adapter per database library.

An adapter performs five things on the caller's connection (begin, put, extend, commit, rollback) and nothing else; what
they are for is decided in `_core/joined.py`. `join` and `join_async` find the adapter by the connection's type, without
importing any library that is not already in use.

For `settle_inside` an adapter may say, after `begin`, whether the caller was in a savepoint of its own (`nested`).

`is_over()` says, from any thread, whether the caller's own transaction has ended: what belongs after it is not waited
for any longer then.

Two more an adapter may have, for speed: `load(id)` looks inside the transaction (otherwise the gate's store is asked),
and `finish(write, expect)` puts and commits in one round trip (otherwise they are two calls).
"""

from onceward.gate.joining._adapters import ADAPTERS, ENDED, IN_PROGRESS, NO_ENCODING
from onceward.gate.joining._awaited import Awaited
from onceward.gate.joining._joined import Joined, finish, join, peek, walk
from onceward.gate.joining._joined_async import AsyncJoined, finish_async, join_async, peek_async, walk_async

__all__ = [
    "ADAPTERS",
    "ENDED",
    "IN_PROGRESS",
    "NO_ENCODING",
    "AsyncJoined",
    "Awaited",
    "Joined",
    "finish",
    "finish_async",
    "join",
    "join_async",
    "peek",
    "peek_async",
    "walk",
    "walk_async",
]
