"""
The balance ledger over HTTP: `/api/v1/balance/...`, with the third document's names and answers.

Keys follow the profile `pacspace`: a key in flight is a 202 with a code, a key with another body a 409.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
from starlette.applications import Starlette

from onceward import InFlight, KeyInvalid
from onceward.http.serving.problems import pending
from onceward.http.serving.profile import PROFILES, Profile
from onceward.service.access import Role
from onceward.service.ledger import wire
from onceward.service.ledger.advising import Advice
from onceward.service.ledger.flows import Place
from onceward.service.ledger.keyed import Kept
from onceward.service.ledger.shells_async import AsyncLedger
from onceward.service.web.calls import Call, Door
from onceward.service.web.endpoints import Answered, Endpoint, Parameter, application

GROUP = "Balance"
PACSPACE = PROFILES["pacspace"]
PREFIX = "/api/v1/balance"


class LedgerApp:
    """The endpoints of one ledger."""

    def __init__(self, ledger: AsyncLedger, door: Door, *, profile: Profile = PACSPACE) -> None:
        self._ledger = ledger
        self._door = door
        self._profile = profile
        self._advice = Advice()

    def endpoints(self) -> list[Endpoint]:
        """The table."""
        month = Parameter("period", "a month in UTC, such as 2026-11", {"type": "string"})
        reference = Parameter("referenceId", "of the delta that the receipt is for", {"type": "string"})
        example = {"customerId": "cus_17", "delta": -1, "reason": "api call", "referenceId": "acme:call:2026-11:7f3a"}
        writes: dict[str, Any] = {"role": Role.WRITE, "keyed": True, "exact": True, "statuses": (200, 202)}
        return [
            Endpoint("POST", f"{PREFIX}/delta", self.emitted, "Book a delta, once per key and per reference.",
                     wire.DeltaShown, wire.Delta, example=example, **writes),
            Endpoint("POST", f"{PREFIX}/delta/batch", self.emitted_many, "Book up to 100 deltas, under one key.",
                     wire.BatchShown, wire.DeltaBatch, example={"deltas": [example]}, **writes),
            Endpoint("POST", f"{PREFIX}/checkpoint", self.closed,
                     "Close a customer's period, once; or mark one that still runs.",
                     wire.CheckpointShown, wire.NewCheckpoint, example={"customerId": "cus_17", "period": "2026-10"},
                     **writes),
            Endpoint("GET", f"{PREFIX}/derive/{{customer}}", self.derived,
                     "Derive a balance from verified deltas.", wire.BalanceShown, parameters=(month,)),
            Endpoint("GET", f"{PREFIX}/receipt/{{customer}}", self.receipted,
                     "The receipt of a delta or of a closed period.", wire.ReceiptShown,
                     parameters=(reference, month)),
            Endpoint("GET", f"{PREFIX}/delta/{{id}}", self.looked_up, "Show one delta.", wire.DeltaShown),
            Endpoint("GET", f"{PREFIX}/gaps/{{customer}}", self.gaps_found,
                     "Show numbers that are missing.", wire.GapsShown),
        ]  # fmt: skip

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return application(self.endpoints(), self._door, profile=self._profile)

    # --- endpoints ---

    async def emitted(self, call: Call) -> Answered:
        """One delta."""
        place = _place(call)
        self._advice.emitted(place.scope, [call.body.customer_id])
        flow = self._ledger.flows.emit(place, call.body, await self._key(call))
        return await self._answered(self._ledger.run(flow))

    async def emitted_many(self, call: Call) -> Answered:
        """Several deltas."""
        place = _place(call)
        self._advice.emitted(place.scope, [one.customer_id for one in call.body.deltas])
        flow = self._ledger.flows.emit_many(place, call.body.deltas, await self._key(call))
        return await self._answered(self._ledger.run(flow))

    async def closed(self, call: Call) -> Answered:
        """A closed period, or a mark."""
        body, key = call.body, await self._key(call)
        flow = self._ledger.flows.checkpoint(_place(call), body.customer_id, body.period, key, close=body.close)
        return await self._answered(self._ledger.run(flow))

    async def derived(self, call: Call) -> Answered:
        """A balance."""
        place, customer = _place(call), call.path("customer")
        shown = await self._ledger.run(self._ledger.flows.derive(place, customer, call.query("period")))
        return Answered(shown, headers=self._advice.derived(place.scope, customer))

    async def receipted(self, call: Call) -> Answered:
        """A receipt."""
        flow = self._ledger.flows.receipt(
            _place(call), call.path("customer"), reference=call.query("referenceId"), period=call.query("period")
        )
        return Answered(await self._ledger.run(flow))

    async def looked_up(self, call: Call) -> Answered:
        """One delta."""
        return Answered(await self._ledger.run(self._ledger.flows.delta(_place(call), call.path("id"))))

    async def gaps_found(self, call: Call) -> Answered:
        """What is missing."""
        return Answered(await self._ledger.run(self._ledger.flows.gaps(_place(call), call.path("customer"))))

    # --- keys and answers ---

    async def _key(self, call: Call) -> str | None:
        found = call.identity(self._profile)
        if found is None:
            return None
        if found.plan is not None:
            raise KeyInvalid(f"the ledger knows no plans: name this request by {self._profile.key_header}")
        await self._door.access.admit(call.caller.tenant)
        return found.key

    async def _answered(self, asked: Awaitable[Kept]) -> Answered:
        try:
            kept = await asked
        except InFlight as running:
            reply = pending(self._profile, running.retry_after_seconds)
            return Answered(msgspec.Raw(reply.body), reply.status, reply.headers)
        # The stored text itself: a replay has the first answer's bytes.
        headers = ((self._profile.replay_header, "true"),) if kept.replayed else ()
        return Answered(msgspec.Raw(kept.text.encode()), headers=headers)


def _place(call: Call) -> Place:
    return Place(call.caller.environment, call.caller.tenant, call.caller.scope)
