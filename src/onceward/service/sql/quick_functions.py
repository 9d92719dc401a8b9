"""
SQLite's functions that can run for seconds as one instruction, with a look at their arguments first.

`printf('%.*c', 2000000000, 'x')` counts to two thousand million before it notices that there is no room (SQLite before
3.42 or so), and `trim(x, y)` takes the product of two lengths. A connection for quick statements gets these in their
place: what is harmless goes to SQLite's own function on another connection, anything else is called off, and runs where
it keeps nobody waiting. A schema that uses one of them (a view, a CHECK) cannot be used here, and is called off, too.
"""

from __future__ import annotations

import re
import sqlite3
from functools import partial
from typing import Any

from onceward.service.sql.limits import Limits

_NUMBER = re.compile(r"\d+")
_DIGITS_MAX = 9
TRIMMED_MAX = 10_000_000
"""Length times number of characters: some hundredths of a second."""


class QuickFunctions:
    """The bounded functions of one connection."""

    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._limits = limits
        self._sqlite = sqlite3.connect(":memory:", check_same_thread=False)
        self._sqlite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
        for name in ("printf", "format"):
            connection.create_function(name, -1, partial(self._printf, name), deterministic=True)
        for name in ("trim", "ltrim", "rtrim"):
            connection.create_function(name, 2, partial(self._trim, name), deterministic=True)

    def close(self) -> None:
        """Let go of the other connection."""
        self._sqlite.close()

    def _printf(self, name: str, *arguments: Any) -> Any:
        template = arguments[0] if arguments else None
        if isinstance(template, bytes):
            template = template.decode("utf-8", "replace")
        if isinstance(template, str):
            widths = _NUMBER.findall(template)
            long = any(len(width) > _DIGITS_MAX for width in widths)
            if "*" in template or long or sum(map(int, widths)) > self._limits.value_bytes:
                raise ValueError("it may take long")
        return self._ask(name, arguments)

    def _trim(self, name: str, *arguments: Any) -> Any:
        text, characters = (len(one) if isinstance(one, str | bytes) else 20 for one in arguments)
        if text * characters > TRIMMED_MAX:
            raise ValueError("it may take long")
        return self._ask(name, arguments)

    def _ask(self, name: str, arguments: tuple[Any, ...]) -> Any:
        marks = ",".join("?" * len(arguments))
        return self._sqlite.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]


def was_called_off(error: BaseException) -> bool:
    """Whether a statement ended because of one of these functions, and not by its own fault."""
    message = str(error)
    return message.startswith("unsafe use of") or message == "user-defined function raised exception"
