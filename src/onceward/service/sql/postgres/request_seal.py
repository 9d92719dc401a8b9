"""
The seal of records on PostgreSQL: a tenant's keys are fetched before its request, in a thread, and used without asking.

`TenantSeal` looks into its table now and then, and blocks meanwhile. Here records are sealed on the event loop, on
which everybody's requests run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from onceward._core.errors import SealKeyMissing
from onceward._core.sealing import Seal, SealContext, SealedData
from onceward.gate.seal_keys import Sealed
from onceward.service.access.scopes import tenant_of
from onceward.service.sql.engine import TenantKeys


class FetchingSeal(TenantKeys, Seal, Protocol):
    """A seal whose keys can be fetched before they are needed."""


class _Fetched:
    __slots__ = ("keys", "requests", "seal")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.requests = 0
        self.use(keys)

    def use(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.seal = Sealed(*keys)


class RequestSeal:
    """Seals with the keys that the requests under way have fetched."""

    def __init__(self, behind: FetchingSeal) -> None:
        self._behind = behind
        self._fetched: dict[str, _Fetched] = {}

    @asynccontextmanager
    async def fetched(self, scope: str) -> AsyncIterator[None]:
        """Have the keys of a scope's tenant at hand, for the length of a block."""
        tenant = tenant_of(scope)
        if tenant is None:
            yield
            return
        keys = self._behind.remembered_keys(scope)
        if keys is None:
            keys = await asyncio.get_running_loop().run_in_executor(None, self._behind.keys_for, scope)
        known = self._fetched.get(tenant)
        if known is None:
            known = self._fetched[tenant] = _Fetched(keys)
        elif known.keys != keys:
            known.use(keys)  # There is a newer one, or they were thrown away: whoever still runs uses the new ones.
        known.requests += 1
        try:
            yield
        finally:
            known.requests -= 1
            if not known.requests:
                del self._fetched[tenant]

    def seal(self, data: bytes, context: SealContext) -> SealedData:
        """Encrypt under the tenant's key."""
        return self._of(context).seal(data, context)

    def unseal(self, sealed: SealedData, context: SealContext) -> bytes:
        """Decrypt; a key that is not at hand is looked for in the table."""
        try:
            return self._of(context).unseal(sealed, context)
        except SealKeyMissing:
            return self._behind.unseal(sealed, context)

    def _of(self, context: SealContext) -> Seal:
        found = self._fetched.get(tenant_of(context.scope) or "")
        return self._behind if found is None else found.seal
