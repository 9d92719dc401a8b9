"""
The endpoints of the balance ledger: `/api/v1/balance/...`.

Keys follow the profile `pacspace`: a key in flight is a 202 with a code, a key with another body a 409.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette

from onceward._core.errors import (
    Expired,
    InFlight,
    KeyInvalid,
    KeyMissing,
    OncewardError,
    QuotaExceeded,
    SealKeyMissing,
    StoreContended,
    StoreFull,
)
from onceward._core.keys import KEY_CHARACTERS_MAX
from onceward.http.server.profile import PROFILES, Profile
from onceward.protocol.errors import (
    CustomerUnknown,
    DeltaRefused,
    DeltaUnknown,
    NothingToReceipt,
    PeriodClosed,
    PeriodNotOpen,
    ReferenceReused,
    VerificationPending,
)
from onceward.protocol.limits import BATCH_MAX, CUSTOMER_CHARACTERS_MAX, METADATA_BYTES_MAX, REASON_CHARACTERS_MAX
from onceward.protocol.paths import BALANCE
from onceward.service.access import Role, Room
from onceward.service.ledger import wire
from onceward.service.ledger.derive_advisor import DeriveAdvisor
from onceward.service.ledger.flows import LedgerScope
from onceward.service.ledger.keyed_transaction import KeyedResult
from onceward.service.ledger.ledger_async import AsyncLedger
from onceward.service.ledger.ledger_usage import DELTA_BYTES
from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import (
    ApiEndpoint,
    EndpointResponse,
    Parameter,
    build_application,
    pending_or_refused,
)
from onceward.service.web.service_contract import AppContract
from onceward.stores.tables import Flow

GROUP = "Balance"
PACSPACE = PROFILES["pacspace"]
DELTA_RECORDS = 2
"""A delta, and the record of its key or its reference."""
KEYED: tuple[type[OncewardError], ...] = (
    *(KeyMissing, Expired, QuotaExceeded, StoreContended, StoreFull, SealKeyMissing),
)
BOOKS: tuple[type[OncewardError], ...] = (
    *KEYED,
    *(ReferenceReused, PeriodClosed, PeriodNotOpen, DeltaRefused, CustomerUnknown, DeltaUnknown),
)
"""What booking may be refused with."""
CLOSES: tuple[type[OncewardError], ...] = (*KEYED, PeriodClosed, PeriodNotOpen, VerificationPending, CustomerUnknown)
"""What closing a period may be refused with."""
LIMITS = {
    "deltasMax": BATCH_MAX,
    "customerCharactersMax": CUSTOMER_CHARACTERS_MAX,
    "reasonCharactersMax": REASON_CHARACTERS_MAX,
    "referenceCharactersMax": KEY_CHARACTERS_MAX,
    "metadataBytesMax": METADATA_BYTES_MAX,
}


class LedgerApp:
    """The endpoints of one ledger."""

    def __init__(self, ledger: AsyncLedger, authenticator: Authenticator, *, profile: Profile = PACSPACE) -> None:
        self._ledger = ledger
        self._authenticator = authenticator
        self._profile = profile
        self._advice = DeriveAdvisor()

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        month = Parameter("period", "a month in UTC, such as 2026-11", {"type": "string"})
        reference = Parameter("referenceId", "the reference of the delta that the receipt is for", {"type": "string"})
        example = {"customerId": "cus_17", "delta": -1, "reason": "api call", "referenceId": "acme:call:2026-11:7f3a"}
        writes: dict[str, Any] = {"role": Role.WRITE, "keyed": True, "exact": True}
        books: dict[str, Any] = {**writes, "refusals": BOOKS}
        return [
            ApiEndpoint("POST", f"{BALANCE}/delta", self.emitted, "Book a delta, once per key and per reference.",
                     wire.DeltaResponse, wire.DeltaRequest, example=example, **books),
            ApiEndpoint("POST", f"{BALANCE}/delta/batch", self.emitted_many, "Book up to 100 deltas under one key.",
                     wire.DeltaBatchResponse, wire.DeltaBatchRequest, example={"deltas": [example]}, **books),
            ApiEndpoint("POST", f"{BALANCE}/checkpoint", self.closed,
                     "Close a customer's period, once; or mark a period that has not ended.",
                     wire.CheckpointResponse, wire.CheckpointRequest,
                     example={"customerId": "cus_17", "period": "2026-10"}, refusals=CLOSES, **writes),
            ApiEndpoint("GET", f"{BALANCE}/derive/{{customer}}", self.derived,
                     "Derive a balance from verified deltas.", wire.BalanceResponse, parameters=(month,),
                     refusals=(CustomerUnknown,)),
            ApiEndpoint("GET", f"{BALANCE}/receipt/{{customer}}", self.receipted,
                     "Get the receipt of a delta or of a closed period.", wire.ReceiptResponse,
                     parameters=(reference, month), refusals=(CustomerUnknown, DeltaUnknown, NothingToReceipt)),
            ApiEndpoint("GET", f"{BALANCE}/delta/{{id}}", self.looked_up, "Show one delta.", wire.DeltaResponse,
                     refusals=(DeltaUnknown,)),
            ApiEndpoint("GET", f"{BALANCE}/gaps/{{customer}}", self.gaps_found,
                     "Show missing sequence numbers.", wire.GapsResponse, refusals=(CustomerUnknown,)),
        ]  # fmt: skip

    def contract(self) -> AppContract:
        """What is published about it."""
        # A record and the deltas that it is about commit together. There are no plans: `_key` refuses their headers.
        promised = replace(self._profile, guarantee="atomic", transactional=True, plans=False)
        return AppContract(GROUP, self.endpoints(), promised, LIMITS)

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return build_application(self.endpoints(), self._authenticator, profile=self._profile)

    # --- endpoints ---

    async def emitted(self, call: ApiCall) -> EndpointResponse:
        """One delta."""
        owner, key = _owner_of(call), self._key(call)
        self._advice.emitted(owner.scope, [call.body.customer_id])
        emit = partial(self._ledger.flows.emit, owner, call.body, key)
        return await self._within_quota(call, DELTA_RECORDS, emit)

    async def emitted_many(self, call: ApiCall) -> EndpointResponse:
        """Several deltas."""
        owner, key = _owner_of(call), self._key(call)
        self._advice.emitted(owner.scope, [one.customer_id for one in call.body.deltas])
        emit = partial(self._ledger.flows.emit_many, owner, call.body.deltas, key)
        return await self._within_quota(call, len(call.body.deltas) + (key is not None), emit)

    async def closed(self, call: ApiCall) -> EndpointResponse:
        """A closed period, or a mark."""
        body, key = call.body, self._key(call)
        flow = partial(
            self._ledger.flows.checkpoint, _owner_of(call), body.customer_id, body.period, key, close=body.close
        )
        return await self._within_quota(call, 1 + (key is not None), flow)

    async def derived(self, call: ApiCall) -> EndpointResponse:
        """A balance."""
        owner, customer = _owner_of(call), call.path("customer")
        shown = await self._ledger.run(self._ledger.flows.derive(owner, customer, call.query("period")))
        return EndpointResponse(shown, headers=self._advice.derived(owner.scope, customer))

    async def receipted(self, call: ApiCall) -> EndpointResponse:
        """A receipt."""
        flow = self._ledger.flows.receipt(
            _owner_of(call), call.path("customer"), reference=call.query("referenceId"), period=call.query("period")
        )
        return EndpointResponse(await self._ledger.run(flow))

    async def looked_up(self, call: ApiCall) -> EndpointResponse:
        """One delta."""
        return EndpointResponse(await self._ledger.run(self._ledger.flows.delta(_owner_of(call), call.path("id"))))

    async def gaps_found(self, call: ApiCall) -> EndpointResponse:
        """What is missing."""
        return EndpointResponse(await self._ledger.run(self._ledger.flows.gaps(_owner_of(call), call.path("customer"))))

    # --- keys and responses ---

    def _key(self, call: ApiCall) -> str | None:
        found = call.identity(self._profile)
        if found is None:
            return None
        if found.plan is not None:
            raise KeyInvalid(f"the ledger has no plans; send the header {self._profile.key_header} instead")
        return found.key

    async def _within_quota(
        self, call: ApiCall, records: int, emit: Callable[..., Flow[KeyedResult]]
    ) -> EndpointResponse:
        """Book within the tenant's quota. Beyond it, what is booked already is still answered."""
        access, full = self._authenticator.access, None
        try:
            room = await access.admit(call.caller.tenant, records=records, bytes=call.size + DELTA_BYTES)
        except QuotaExceeded as error:
            room, full = Room(call.caller.tenant, 0, 0), error
        kept: KeyedResult | None = None

        async def booked() -> KeyedResult:
            nonlocal kept
            kept = await self._ledger.run(emit(full=full))
            return kept

        try:
            return await self._respond(booked())
        finally:
            if kept is None or kept.replayed:
                access.settle_room(room)

    async def _respond(self, pending: Awaitable[KeyedResult]) -> EndpointResponse:
        try:
            kept = await pending
        except InFlight as running:
            return pending_or_refused(running, self._profile)
        # The stored text itself: a replay has the first response's bytes.
        headers = ((self._profile.replay_header, "true"),) if kept.replayed else ()
        return EndpointResponse(msgspec.Raw(kept.text.encode()), headers=headers)


def _owner_of(call: ApiCall) -> LedgerScope:
    return LedgerScope(call.caller.environment, call.caller.tenant, call.caller.scope)
