"""
Which limit a statement ran into: SQLite names none in its messages, so the number in force is put behind them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from onceward.protocol.errors import SqlError
from onceward.service.sql.limits import Limits


class LimitText(NamedTuple):
    """A message, and the limit that it is about."""

    message: re.Pattern[str]
    limit: str
    unit: str


LIMIT_TEXTS = tuple(
    LimitText(re.compile(message), limit, unit)
    for message, limit, unit in (
        ("^the statement was interrupted", "statement_seconds", "s"),
        ("^canceling statement due to (?:statement timeout|user request)", "statement_seconds", "s"),
        ("^too many columns", "columns", "columns"),
        ("^too many terms in compound", "compound_selects", "SELECTs"),
        ("^too many arguments", "function_arguments", "arguments"),
        ("^too many levels of trigger", "trigger_depth", "levels"),
        ("^too many SQL variables", "parameters", "parameters"),
        ("pattern too complex", "pattern_bytes", "bytes"),
        ("^string or blob too big", "value_bytes", "bytes"),
        ("^(?:the )?database (?:or disk )?is full", "database_bytes", "bytes"),
    )
)


def with_limit(error: SqlError, limits: Limits) -> SqlError:
    """The same error, with the number that it ran into."""
    message = str(error)
    for one in LIMIT_TEXTS:
        if one.message.search(message):
            number = getattr(limits, one.limit)
            error.args = (f"{message}; at most {int(number) if number == int(number) else number} {one.unit}",)
            break
    return error
