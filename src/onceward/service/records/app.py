"""
`/v1/records`: the records of a tenant, for its admin tokens.

An operator decides what is in doubt: it happened (with its result), or it did not.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette

from onceward._core.operation import NOT_FOUND, Found
from onceward._core.record import Record
from onceward._core.store_protocols import Selection, Store
from onceward.audit import API, DecisionLog, Operator
from onceward.gate.operator_actions import find_records
from onceward.gate.record_decisions import decide_record
from onceward.gate.record_view import RecordView, view
from onceward.protocol.errors import ResourceNotFound
from onceward.service.access import Caller, Role, tenant_of
from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import ApiEndpoint, EndpointResponse, Parameter, build_application
from onceward.service.web.problems import RequestMalformed

GROUP = "Records"
PAGE_MAX = 100
ID_DIGITS = frozenset("0123456789abcdef")


class RecordResponse(msgspec.Struct, rename="camel"):
    """A record. Its key is shown, because the tenant chose it; its result only when it is asked for by itself."""

    id: str
    scope: str
    key: str
    kind: str
    operation: str
    state: str
    guarantee: str
    attempt: int
    fence: int
    first_at: str
    settled_at: str | None
    lease_seconds_left: float | None
    replay_seconds_left: float | None
    failure: str | None
    result: Any = None


class RecordsResponse(msgspec.Struct, rename="camel"):
    """One page of records."""

    records: list[RecordResponse]
    after: str | None
    """Where the next page begins; null at the end."""


class HappenedRequest(msgspec.Struct, forbid_unknown_fields=True):
    """It happened, and this is its result."""

    result: Any
    fence: int | None = None
    """Decide this claim only, as it was shown."""
    reason: str | None = None
    """Why, for the decision log."""


class DidNotHappenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """It did not happen: the key is free."""

    fence: int | None = None
    reason: str | None = None


class RecordsApp:
    """The endpoints over one store. The store is a blocking one, and is asked in threads: operators are few."""

    def __init__(self, store: Store, authenticator: Authenticator, log: DecisionLog) -> None:
        self._store = store
        self._log = log
        self._authenticator = authenticator

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        query = (
            Parameter("scope", "a scope of this tenant; without it, environment and tenant", {"type": "string"}),
            Parameter("unsettled", "leave settled records out", {"enum": ["true", "false"]}),
            Parameter("after", "where the page begins, as the page before says", {"type": "string"}),
            Parameter("limit", "records of a page", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
        )
        path = "/v1/records/{id}"
        return [
            ApiEndpoint("GET", "/v1/records", self.listed, "Show records.", RecordsResponse, role=Role.ADMIN,
                     parameters=query),
            ApiEndpoint("GET", path, self.shown, "Show one record, with its result.", RecordResponse, role=Role.ADMIN),
            ApiEndpoint("POST", f"{path}/reconcile", self.reconciled, "Decide: it happened, with this result.",
                     RecordResponse, HappenedRequest, role=Role.ADMIN,
                     example={"result": {"id": "ch_1"}}),
            ApiEndpoint("POST", f"{path}/release", self.released, "Decide: it did not happen.", RecordResponse,
                     DidNotHappenRequest, role=Role.ADMIN, example={}),
        ]  # fmt: skip

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return build_application(self.endpoints(), self._authenticator)

    async def listed(self, call: ApiCall) -> EndpointResponse:
        """One page."""
        scope = call.query("scope") or call.caller.scope
        if not _owns(call.caller, scope):
            raise ResourceNotFound("there is no such scope")
        after, limit = call.query("after") or "", call.limit(PAGE_MAX)
        if not set(after) <= ID_DIGITS or len(after) > 64 or len(after) % 2:
            raise RequestMalformed("after is not valid: send the id that the page before ended with")
        selection = Selection(scope=scope, unsettled=call.query("unsettled") == "true")
        page = await asyncio.to_thread(self._store.scan, bytes.fromhex(after), limit, selection)
        shown = [_shown(view(record)) for record in page]
        return EndpointResponse(RecordsResponse(shown, page[-1].id.hex() if len(page) == limit else None))

    async def shown(self, call: ApiCall) -> EndpointResponse:
        """One record."""
        return EndpointResponse(_shown(view(await self._find(call)), whole=True))

    async def reconciled(self, call: ApiCall) -> EndpointResponse:
        """It happened."""
        return await self._decide(call, Found(call.body.result))

    async def released(self, call: ApiCall) -> EndpointResponse:
        """It did not."""
        return await self._decide(call, NOT_FOUND)

    async def _decide(self, call: ApiCall, outcome: Any) -> EndpointResponse:
        found = await self._find(call)
        operator = Operator(f"token {call.caller.token}", API, call.body.reason)
        decide = partial(decide_record, tenant=call.caller.tenant, fence=call.body.fence)
        decided = await asyncio.to_thread(decide, self._log, self._store, found, outcome, operator)
        return EndpointResponse(_shown(view(decided), whole=True))

    async def _find(self, call: ApiCall) -> Record:
        """The record of an id (or of its first digits), if it is this tenant's; others look as if there were none."""
        digits = call.path("id")
        if not 12 <= len(digits) <= 64 or not set(digits) <= ID_DIGITS:
            raise ResourceNotFound("there is no such record")
        found = await asyncio.to_thread(find_records, self._store, digits)
        own = [record for record in found if _owns(call.caller, record.scope)]
        if len(own) != 1:
            raise ResourceNotFound("there is no such record")
        return own[0]


def _owns(caller: Caller, scope: str) -> bool:
    return tenant_of(scope) == caller.tenant and scope.startswith(f"{caller.environment}:")


def _shown(seen: RecordView, *, whole: bool = False) -> RecordResponse:
    return RecordResponse(
        id=seen.id,
        scope=seen.scope,
        key=seen.key,
        kind=seen.kind,
        operation=seen.operation,
        state=seen.state,
        guarantee=seen.guarantee,
        attempt=seen.attempt,
        fence=seen.fence,
        first_at=seen.first_at.isoformat(),
        settled_at=None if seen.settled_at is None else seen.settled_at.isoformat(),
        lease_seconds_left=seen.lease_seconds_left,
        replay_seconds_left=seen.replay_seconds_left,
        failure=seen.failure,
        result=seen.result if whole else None,
    )
