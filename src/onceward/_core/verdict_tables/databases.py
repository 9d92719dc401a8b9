"""
Databases: psycopg by SQLSTATE, redis.
"""

from __future__ import annotations

from typing import Any

from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward._core.verdict_tables.rules import (
    LOST,
    MISUSED,
    NEVER_LEFT,
    UNKNOWN,
    JudgeFunction,
    Table,
    read_attribute,
    text_of,
)

_ROLLED_BACK = Verdict(Certainty.REJECTED, Kind.STATE, Action.SAME_KEY)
_CONFLICT = Verdict(Certainty.REJECTED, Kind.STATE, Action.NEVER)
_STATEMENT = Verdict(Certainty.REJECTED, Kind.CLIENT, Action.NEVER)
_TURNED_AWAY = Verdict(Certainty.NOT_SENT, Kind.UPSTREAM, Action.SAME_KEY)
_NO_ROOM = Verdict(Certainty.REJECTED, Kind.UPSTREAM, Action.SAME_KEY)

SQLSTATES: dict[str, Verdict] = {
    "08001": NEVER_LEFT,  # the client could not connect
    "08004": _TURNED_AWAY,  # the server would not have the connection
    "08P01": Verdict(Certainty.UNKNOWN, Kind.CLIENT, Action.NEVER),
    "53300": _TURNED_AWAY,  # too many connections
    "57P03": _TURNED_AWAY,  # starting up or shutting down: no connections now
    "40001": _ROLLED_BACK,  # serialization failure
    "40P01": _ROLLED_BACK,  # deadlock
    "40003": LOST,  # statement completion unknown
    "55P03": _ROLLED_BACK,  # the lock was not to be had
    "57014": Verdict(Certainty.REJECTED, Kind.OTHER, Action.NEVER),  # cancelled on request, or past a statement timeout
    "57P01": LOST,  # the server is shutting down: this connection ends, perhaps in the middle of a commit
    "57P02": LOST,
    "57P05": LOST,
    "25P02": Verdict(Certainty.REJECTED, Kind.STATE, Action.NEVER),  # an earlier statement failed
    "28000": Verdict(Certainty.NOT_SENT, Kind.AUTH, Action.ESCALATE),
    "28P01": Verdict(Certainty.NOT_SENT, Kind.AUTH, Action.ESCALATE),
    "42501": Verdict(Certainty.REJECTED, Kind.AUTH, Action.ESCALATE),  # insufficient privilege
}
"""By SQLSTATE. An error that the server reports has undone its statement, and with it the transaction."""

SQLSTATE_CLASSES: dict[str, Verdict] = {
    "08": LOST,  # connection exceptions
    "22": _STATEMENT,  # data
    "23": _CONFLICT,  # integrity constraints
    "40": _ROLLED_BACK,
    "42": _STATEMENT,  # syntax or access rule
    "53": _NO_ROOM,  # out of a resource
}
"""By the SQLSTATE's first two characters, where the whole is not listed."""


def verdict_by_sqlstate(state: Any) -> Verdict | None:
    """The verdict on an SQLSTATE; None if it is not one that is known."""
    if not isinstance(state, str) or len(state) != 5:
        return None
    return SQLSTATES.get(state) or SQLSTATE_CLASSES.get(state[:2])


def _psycopg(error: Any, _judge: JudgeFunction) -> Verdict | None:
    return verdict_by_sqlstate(read_attribute(error, "sqlstate"))


_NOT_CONNECTED = ("connection failed: ", "connection is bad: ", "failed to resolve host ")
"""psycopg's own words, before those of libpq (which may be in any language). It says them while connecting only."""


def _psycopg_operational(error: Any, _judge: JudgeFunction) -> Verdict:
    """Without an SQLSTATE it is the connection: never made, or lost, perhaps while committing."""
    told = verdict_by_sqlstate(read_attribute(error, "sqlstate"))
    if told is not None:
        return told
    return NEVER_LEFT if text_of(error).startswith(_NOT_CONNECTED) else LOST


# redis-py tries again by itself after connection trouble (three times, by default), and its error is that of the last
# try. So no answer of the server's proves that an earlier try was not carried out, and no refused connection does.
_TRY_AGAIN = Verdict(Certainty.UNKNOWN, Kind.UPSTREAM, Action.SAME_KEY)
_REDIS: Table = {
    "MaxConnectionsError": NEVER_LEFT,
    "DataError": MISUSED,
    "BusyLoadingError": _TRY_AGAIN,
    "ReadOnlyError": _TRY_AGAIN,
    "MasterDownError": _TRY_AGAIN,
    "ClusterDownError": _TRY_AGAIN,
    "TryAgainError": _TRY_AGAIN,
    "OutOfMemoryError": Verdict(Certainty.UNKNOWN, Kind.UPSTREAM, Action.ESCALATE),
    "AuthenticationError": Verdict(Certainty.UNKNOWN, Kind.AUTH, Action.ESCALATE),
    "AuthorizationError": Verdict(Certainty.UNKNOWN, Kind.AUTH, Action.ESCALATE),
    "NoPermissionError": Verdict(Certainty.UNKNOWN, Kind.AUTH, Action.ESCALATE),
    "WatchError": Verdict(Certainty.UNKNOWN, Kind.STATE, Action.SAME_KEY),
    "ConnectionError": LOST,
    "TimeoutError": LOST,
    "ResponseError": UNKNOWN,
}

TABLE: Table = {
    "psycopg.errors.ConnectionTimeout": NEVER_LEFT,
    "psycopg.OperationalError": _psycopg_operational,
    "psycopg.Error": _psycopg,
    "psycopg_pool.PoolTimeout": NEVER_LEFT,
    "psycopg_pool.TooManyRequests": NEVER_LEFT,
    "psycopg_pool.PoolClosed": MISUSED,
    # Whoever wraps or replaces the driver: a row that breaks a constraint was refused, and with it its transaction.
    "asyncpg.exceptions.IntegrityConstraintViolationError": _CONFLICT,
    "django.db.utils.IntegrityError": _CONFLICT,
    "psycopg2.IntegrityError": _CONFLICT,
    "sqlalchemy.exc.IntegrityError": _CONFLICT,
    **{f"redis.exceptions.{name}": rule for name, rule in _REDIS.items()},
}
