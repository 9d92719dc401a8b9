"""
Atomic mode on the caller's own psycopg connection, of either colour.

With no transaction open, one is opened and ended by us. Inside the caller's transaction a savepoint is used, and the
caller commits. A connection in autocommit with no transaction open is refused: the record would commit alone.

Statements that follow one another are sent together (libpq's pipeline mode), so that atomic mode adds no round trip:
begin and claim are one, settle and commit are one.

Under READ COMMITTED a racer waits at the constraint, as long as the store's lock timeout allows, and replays the
winner. Above that level, on a deadlock and on a lock timeout, the caller has to run its transaction again:
`RetryTransaction`.
"""

from __future__ import annotations

from onceward.gate.joining._psycopg_joined import JoinedPsycopg, join, walk
from onceward.gate.joining._psycopg_joined_async import AsyncJoinedPsycopg, join_async, walk_async

__all__ = ["AsyncJoinedPsycopg", "JoinedPsycopg", "join", "join_async", "walk", "walk_async"]
