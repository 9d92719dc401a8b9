"""
The balance ledger, in both colours.
"""

from __future__ import annotations

from typing import Any


class Balance:
    """The tenant's balance ledger."""

    def __init__(self, client: Any, environment: str) -> None:
        self._client, self._environment = client, environment


class AsyncBalance:
    """Same as `Balance`, but awaits."""

    def __init__(self, client: Any, environment: str) -> None:
        self._client, self._environment = client, environment
