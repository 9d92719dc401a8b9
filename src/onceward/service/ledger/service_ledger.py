"""
A ledger as a service has it: open for as long as the service is, and with its worker where verdicts are queued.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from onceward._core.errors import OncewardError
from onceward._core.sealing import Seal
from onceward.runtime.environment import REAL
from onceward.service.ledger.ledger_async import AsyncLedger
from onceward.service.ledger.ledger_entries import LedgerTerms
from onceward.service.ledger.verification import BATCH
from onceward.service.settings import Settings

IDLE_SECONDS = 0.2
"""Between two looks for deltas that wait, where there were none: what a client waits for its verdict at most."""
TROUBLED_SECONDS = 5.0

log = logging.getLogger("onceward.service")


@asynccontextmanager
async def open_service_ledger(url: str, settings: Settings, seal: Seal | None = None) -> AsyncIterator[AsyncLedger]:
    """The ledger beside a store, as the settings want it."""
    terms = LedgerTerms(late=settings.ledger_late, customers=settings.ledger_customers, verify=settings.ledger_verify)
    ledger = await AsyncLedger.open(
        url, terms, create=True, retain=settings.retain, seal=seal, sealed_only=settings.sealed_only
    )
    worker = asyncio.create_task(verify_forever(ledger, until_none=settings.ledger_verify == "inline"))
    try:
        yield ledger
    finally:
        worker.cancel()
        await asyncio.wait({worker})
        await ledger.close()


async def verify_forever(ledger: AsyncLedger, *, until_none: bool = False) -> None:
    """
    Give queued deltas their verdicts, until cancelled. Killed anywhere, the next one goes on.

    With verdicts inline there is nothing to wait for but what an earlier start had queued: `until_none`.
    """
    while True:
        try:
            found = await ledger.run(ledger.flows.verify_queued())
            if until_none and not found:
                return
            pause = 0.0 if found >= BATCH else IDLE_SECONDS
        except OncewardError as error:
            log.warning("queued deltas could not be verified, and will be tried again: %s", error)
            pause = TROUBLED_SECONDS
        await REAL.asleep(pause)
