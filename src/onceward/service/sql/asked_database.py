"""
Of which database an engine is asked something, and who pays for it.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward.service.access.accounts import Account


class AskedDatabase(NamedTuple):
    """A database, and the account of whoever asks; None: nobody counts."""

    namespace: str
    database: str
    account: Account | None

    @property
    def tenant(self) -> str:
        """Whose line it is: everything of one account together; without one, a namespace."""
        return f"namespace:{self.namespace}" if self.account is None else self.account.owner
