"""
Joining the caller's own transaction: one small adapter per database library.

An adapter is a `Joined` (`_core/connection_async.py`): it performs on the caller's connection what `_core/joined.py`
decides, and nothing else. A store that has a way of its own to join says so (`Capabilities.joins`), and is asked for
the adapter. For the stores that come with Onceward, `join` and `join_async` find one of these by the connection's type,
without importing any library that is not already in use.

Two more an adapter of ours may have: `nested` says, after `begin`, whether the caller was in a savepoint of its own
(for `settle_inside`); one that is a `Finishing` puts and commits in one round trip (otherwise they are two calls).
"""

from onceward._core.capabilities import Awaited
from onceward._core.connection import Joined
from onceward._core.connection_async import AsyncJoined
from onceward.gate.joining._adapters import ADAPTERS, ENDED, IN_PROGRESS, NO_ENCODING
from onceward.gate.joining._joined import finish, join, walk
from onceward.gate.joining._joined_async import finish_async, join_async, walk_async

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
    "walk",
    "walk_async",
]
