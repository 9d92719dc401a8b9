"""
Pages of a service for whoever runs its store: every tenant's ledger, tokens and balances, to look at.

`onceward dashboard` adds them where the store has such tables. The service itself shows each tenant its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from onceward._core.errors import ConfigurationError
from onceward.dashboard.page import Page
from onceward.service.access import AsyncAccess
from onceward.service.ledger.ledger_async import AsyncLedger
from onceward.service.ledger.ledger_pages import LedgerPages
from onceward.service.usage.account_page import AccountPages


@asynccontextmanager
async def operator_pages(url: str) -> AsyncIterator[tuple[Page, ...]]:
    """The pages for which a store has tables, for the length of an `async with` block. Nothing is made."""
    pages: list[Page] = []
    async with AsyncExitStack() as stack:
        with suppress(ConfigurationError):  # No service has used this store, or none could.
            ledger = await AsyncLedger.open(url)
            stack.push_async_callback(ledger.close)
            pages += LedgerPages(ledger).pages()
        with suppress(ConfigurationError):
            access = await AsyncAccess.open(url)
            stack.push_async_callback(access.close)
            pages += AccountPages(access).pages()
        yield tuple(pages)
