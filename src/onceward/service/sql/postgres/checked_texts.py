"""
What the parser said about texts, so that a program's few statements are parsed once.

The verdict depends on the text and on the server's catalog, and not on parameters. So it is kept with the checker that
was made for a catalog, and forgotten with it. What was refused is not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

from onceward.service.sql.postgres.statement_checker import CheckedStatement

TEXTS_MAX: Final = 2_000
CHARACTERS_MAX: Final = 2_000
"""Of a text that is kept: four megabytes in all, at most."""


class Checks(Protocol):
    """Says what a statement is, or refuses it."""

    def check(self, sql: str) -> CheckedStatement:
        """Say what it is; `SqlError` if it is refused."""


class CheckedTexts:
    """A checker that remembers what it took."""

    def __init__(self, checker: Checks) -> None:
        self.checker = checker
        """The one behind it, which parses."""
        self._known: OrderedDict[str, CheckedStatement] = OrderedDict()

    def check(self, sql: str) -> CheckedStatement:
        """Say what a statement is, or refuse it: `SqlError`."""
        known = self._known.get(sql)
        if known is not None:
            self._known.move_to_end(sql)
            return known
        checked = self.checker.check(sql)
        if len(sql) <= CHARACTERS_MAX:
            self._known[sql] = checked
            if len(self._known) > TEXTS_MAX:
                self._known.popitem(last=False)
        return checked
