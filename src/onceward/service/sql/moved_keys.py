"""
Keys that came with a database that was moved here: their first requests may be in words that this database refuses.

A retry of such a request is replayed all the same: what it came to is stored, and nothing has to be understood for
that. Whoever has no first result gets the refusal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from onceward._core.errors import KeyReused
from onceward.protocol.errors import SqlError
from onceward.service.sql.requests import Identity, SqlRequest
from onceward.service.sql.worker_errors import NotReplayed

T = TypeVar("T")


async def replay_or_refuse(
    refusal: SqlError,
    identity: Identity | None,
    request: Callable[[], SqlRequest],
    perform: Callable[[SqlRequest], Awaitable[T]],
    *,
    readonly: bool,
) -> T:
    """The first result of a key, or the refusal. Whoever may only read learns nothing of keys."""
    if identity is None or readonly:
        raise refusal
    try:
        return await perform(request()._replace(replay_only=True))
    except (NotReplayed, SqlError, KeyReused):
        raise refusal from None
