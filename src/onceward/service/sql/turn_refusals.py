"""
What a request is told that does not get its turn: nothing of it was run.
"""

from __future__ import annotations

from onceward._core.errors import OncewardError
from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.access.accounts import Account


def line_full(waiting: int) -> SqlError:
    """As many wait for the database as may."""
    return _busy(f"the database is busy: {waiting} requests wait for it. This one was not run")


def waited_too_long(seconds: float, account: Account | None, needed: float) -> OncewardError:
    """No turn came in time: because of what the tenant has used, or of the others."""
    if account is not None and account.cpu_wait(needed) > 0:
        return no_processor_time(account, needed)
    return _busy(f"the database was busy for {seconds:g} s. The request was not run")


def no_processor_time(account: Account, needed: float) -> OncewardError:
    """The tenant has used up its processor time."""
    wait = account.cpu_wait(needed)
    return account.refusal(
        "this tenant has used up its processor time. Nothing was run; send it again "
        f"in {wait:.1f} s, with the same key, and make statements cheaper: an index, a LIMIT",
        wait,
    )


def _busy(message: str) -> SqlError:
    return SqlError(
        SqlKind.LOCKED, message, hint="send it again in a second, with the same key", retry_after_seconds=1.0
    )
