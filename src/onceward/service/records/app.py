"""
`/v1/records`: the records of a tenant, for its admin tokens.

They are in two places: in the service's own store, and, of keyed SQL, in the database that was written to. An operator
decides what is in doubt: it happened (with its result), or it did not. Only the store has anything in doubt: the record
of a statement commits together with what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.applications import Starlette

from onceward._core.errors import (
    AlreadySettled,
    IllegalMove,
    KeyInvalid,
    KeyMissing,
    OncewardError,
    SealKeyMissing,
    StoreContended,
    StoreFull,
)
from onceward._core.operation import NOT_FOUND, Found
from onceward._core.record import Record
from onceward._core.store_protocols import Selection, Store
from onceward.audit import API, DecisionLog, Operator
from onceward.gate.operator_actions import find_records, id_of_key, id_of_step
from onceward.gate.record_decisions import decide_record
from onceward.gate.record_view import RecordView, view
from onceward.protocol.errors import DatabaseUnknown, ResourceNotFound
from onceward.service.access import Caller, Role, tenant_of
from onceward.service.access.scopes import is_of_database
from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import (
    ApiEndpoint,
    EndpointResource,
    EndpointResponse,
    Parameter,
    build_application,
)
from onceward.service.web.problems import RequestMalformed
from onceward.service.web.service_contract import AppContract

GROUP = "Records"
PAGE_MAX = 100
DATABASES_MAX = 100
"""Databases that are searched for one key or digest: each is a file to open."""
DIGEST_DIGITS = 12
WRONG_AFTER = "after is not valid: send what the previous page ended with"
DECIDES: tuple[type[OncewardError], ...] = (AlreadySettled, IllegalMove, StoreContended, StoreFull, SealKeyMissing)
"""What a decision may be refused with."""
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
    database: str | None = None
    """The database whose write it is about; null: it is in the service's own store."""


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


class FoundRecord(Protocol):
    """A record in a database."""

    @property
    def name(self) -> tuple[str, str]:
        """The database: whose it is, and its name."""

    @property
    def record(self) -> Record:
        """The record."""


class FoundRecords(Protocol):
    """Some records, and where the next page begins."""

    @property
    def found(self) -> Sequence[FoundRecord]:
        """The records."""

    @property
    def after(self) -> str | None:
        """Where the next page begins; None at the end."""


class RecordsInDatabases(Protocol):
    """Where records of keyed SQL are read. Everything here blocks, and runs nothing of a tenant's."""

    def databases(self, environment: str, tenant: str) -> Sequence[Any]:
        """A tenant's databases, by name."""

    def page(self, names: Sequence[Any], limit: int, after: str = "", scope: str | None = None) -> FoundRecords:
        """Records database by database."""

    def oldest(
        self,
        names: Sequence[Any],
        limit: int,
        after: str = "",
        *,
        older_than: float = 0.0,
        scope: str | None = None,
    ) -> FoundRecords:
        """Records of these databases, the oldest first."""

    def stored_scope(self, name: Any, scope: str) -> str:
        """The scope of a record as it is stored in a database."""

    def load(self, names: Sequence[Any], id_in: Callable[[Any], bytes]) -> Sequence[FoundRecord]:
        """The records with these ids."""

    def begin_with(self, names: Sequence[Any], digits: str) -> Sequence[FoundRecord]:
        """The records whose ids begin with these digits."""


class RecordsApp:
    """
    The endpoints over one store, and the databases beside it. Both block, and are asked in threads: operators are few.
    """

    def __init__(
        self, store: Store, authenticator: Authenticator, log: DecisionLog, databases: RecordsInDatabases
    ) -> None:
        self._store = store
        self._log = log
        self._authenticator = authenticator
        self._databases = databases

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        seconds = {"type": "number", "minimum": 0}
        database = Parameter("database", "only in this database; * means all of them, but not the service's own store",
                             {"type": "string"})  # fmt: skip
        query = (
            database,
            Parameter("key", "only this key; with plan, this step", {"type": "string"}),
            Parameter("plan", "only the step of this plan that key names", {"type": "string"}),
            Parameter("digest", "only records whose id begins like this, as shown in logs", {"type": "string"}),
            Parameter("order", "id, or age (oldest first; needs database)", {"enum": ["id", "age"]}),
            Parameter("older_than", "with order=age: only those first used longer ago than this many seconds", seconds),
            Parameter(
                "scope",
                "a scope of this tenant; by default the token's scope in the store, and all scopes in databases",
                {"type": "string"},
            ),
            Parameter("unsettled", "leave settled records out", {"enum": ["true", "false"]}),
            Parameter("after", "where to start: what the previous page ended with", {"type": "string"}),
            Parameter("limit", "records per page", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
        )
        path = "/v1/records/{id}"
        return [
            ApiEndpoint("GET", "/v1/records", self.listed, "Show records.", RecordsResponse, role=Role.ADMIN,
                     about=EndpointResource.RECORDS,
                     parameters=query, refusals=(DatabaseUnknown, KeyInvalid, KeyMissing, SealKeyMissing)),
            ApiEndpoint("GET", path, self.shown, "Show one record, with its result.", RecordResponse, role=Role.ADMIN,
                     about=EndpointResource.RECORDS,
                     parameters=(database,), refusals=(DatabaseUnknown, SealKeyMissing)),
            ApiEndpoint("POST", f"{path}/reconcile", self.reconciled, "Decide: it happened, with this result.",
                     RecordResponse, HappenedRequest, role=Role.ADMIN,
                     example={"result": {"id": "ch_1"}}, refusals=DECIDES),
            ApiEndpoint("POST", f"{path}/release", self.released, "Decide: it did not happen.", RecordResponse,
                     DidNotHappenRequest, role=Role.ADMIN, example={}, refusals=DECIDES),
        ]  # fmt: skip

    def contract(self) -> AppContract:
        """What is published about it."""
        return AppContract(GROUP, self.endpoints(), limits={"pageEntriesMax": PAGE_MAX})

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return build_application(self.endpoints(), self._authenticator)

    async def listed(self, call: ApiCall) -> EndpointResponse:
        """One page."""
        page = await asyncio.to_thread(self._page, call, self._asked(call))
        return EndpointResponse(page)

    async def shown(self, call: ApiCall) -> EndpointResponse:
        """One record."""
        digits = call.path("id")
        if not DIGEST_DIGITS <= len(digits) <= 64 or not set(digits) <= ID_DIGITS:
            raise ResourceNotFound("there is no such record")
        wanted = _Wanted(digest=digits, database=call.query("database"), limit=PAGE_MAX)
        found = await asyncio.to_thread(self._by_digest, call.caller, wanted)
        if len(found) != 1:
            raise ResourceNotFound("there is no such record")
        [(record, database)] = found
        return EndpointResponse(_shown(view(record), database, whole=True))

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
        if not DIGEST_DIGITS <= len(digits) <= 64 or not set(digits) <= ID_DIGITS:
            raise ResourceNotFound("there is no such record")
        own = await asyncio.to_thread(self._stored, call.caller, digits)
        if len(own) != 1:
            raise ResourceNotFound("there is no such record")
        return own[0]

    # --- both places ---

    def _asked(self, call: ApiCall) -> _Wanted:
        """What a page is asked for; refused if it contradicts itself."""
        wanted = _Wanted(
            database=call.query("database"),
            key=call.query("key"),
            plan=call.query("plan"),
            digest=call.query("digest"),
            by_age=call.query("order") == "age" or call.query("older_than") is not None,
            older_than=_seconds(call.query("older_than") or "0"),
            scope=call.query("scope"),
            unsettled=call.query("unsettled") == "true",
            after=call.query("after") or "",
            limit=call.limit(PAGE_MAX),
        )
        if wanted.scope is not None and not _owns(call.caller, wanted.scope):
            raise ResourceNotFound("there is no such scope")
        if call.query("order") not in (None, "id", "age"):
            raise RequestMalformed("order must be id or age")
        if wanted.by_age and wanted.database is None:
            raise RequestMalformed("order=age is for records of databases: add database=NAME, or database=* for all")
        if wanted.plan is not None and wanted.key is None:
            raise RequestMalformed("plan needs key, the step's name; or leave it out")
        if wanted.key is not None and wanted.digest is not None:
            raise RequestMalformed("key and digest both name the record; send one of them")
        digest = wanted.digest
        if digest is not None and not (DIGEST_DIGITS <= len(digest) <= 64 and set(digest) <= ID_DIGITS):
            raise RequestMalformed(f"digest must be {DIGEST_DIGITS} to 64 hex digits, as shown in logs")
        return wanted

    def _page(self, call: ApiCall, wanted: _Wanted) -> RecordsResponse:
        """A page of what was asked for. It blocks."""
        caller, names = call.caller, self._names(call.caller, wanted)
        if wanted.digest is not None:
            return _as_page(self._by_digest(caller, wanted))
        if wanted.key is not None:
            return _as_page(self._by_key(caller, wanted, names))
        if wanted.by_age:
            page = self._databases.oldest(
                names, wanted.limit, wanted.after, older_than=wanted.older_than, scope=wanted.scope
            )
            return _as_page(_named(page.found), page.after)
        found: list[tuple[Record, str | None]] = []
        after: str | None = wanted.after
        if set(wanted.after) <= ID_DIGITS:  # Not a place in a database, so one in the store.
            if _is_in_store(caller, wanted):
                found += [(record, None) for record in self._scan(caller, wanted)]
                if len(found) == wanted.limit:
                    return _as_page(found, found[-1][0].id.hex())
            elif wanted.after:
                raise RequestMalformed(WRONG_AFTER)
            after = ""
        if wanted.unsettled:
            return _as_page(found)  # What is in a database's file was committed with what it is about.
        page = self._databases.page(names, wanted.limit - len(found), after or "", wanted.scope)
        return _as_page([*found, *_named(page.found)], page.after)

    def _scan(self, caller: Caller, wanted: _Wanted) -> list[Record]:
        if len(wanted.after) not in (0, 64):
            raise RequestMalformed(WRONG_AFTER)
        selection = Selection(scope=wanted.scope or caller.scope, unsettled=wanted.unsettled)
        return self._store.scan(bytes.fromhex(wanted.after), wanted.limit, selection)

    def _names(self, caller: Caller, wanted: _Wanted) -> list[Any]:
        """The databases that are meant, of those that this token is for."""
        if wanted.database not in (None, "*"):
            caller.require(database=wanted.database)
        found = [
            one
            for one in self._databases.databases(caller.environment, caller.tenant)
            if (caller.databases is None or one.database in caller.databases)
            and wanted.database in (None, "*", one.database)
        ]
        if not found and wanted.database not in (None, "*"):
            raise DatabaseUnknown
        return found

    def _by_key(self, caller: Caller, wanted: _Wanted, names: list[Any]) -> list[tuple[Record, str | None]]:
        def id_in(scope: str) -> bytes:
            key = str(wanted.key)
            return id_of_key(scope, key) if wanted.plan is None else id_of_step(scope, wanted.plan, key)

        found: list[tuple[Record, str | None]] = []
        if _is_in_store(caller, wanted):
            record = self._store.load(id_in(wanted.scope or caller.scope))
            found += [] if record is None else [(record, None)]
        _check_number(names)

        def id_of(name: Any) -> bytes:
            return id_in(self._databases.stored_scope(name, wanted.scope or caller.scope_for(name.database)))

        loaded = self._databases.load(names, id_of)
        return [*found, *_named(loaded)]

    def _by_digest(self, caller: Caller, wanted: _Wanted) -> list[tuple[Record, str | None]]:
        digits, found = str(wanted.digest), list[tuple[Record, str | None]]()
        if _is_in_store(caller, wanted):
            found += [(one, None) for one in self._stored(caller, digits)]
            if found and len(digits) == 64:
                return found
        names = self._names(caller, wanted)
        _check_number(names)
        return [*found, *_named(self._databases.begin_with(names, digits))]

    def _stored(self, caller: Caller, digits: str) -> list[Record]:
        """A caller's records in the store by their first digits, without those of databases that share its table."""
        found = find_records(self._store, digits)
        return [one for one in found if _owns(caller, one.scope) and not is_of_database(one.scope)]


class _Wanted(NamedTuple):
    """Which records are asked for."""

    limit: int
    database: str | None = None
    key: str | None = None
    plan: str | None = None
    digest: str | None = None
    by_age: bool = False
    older_than: float = 0.0
    scope: str | None = None
    unsettled: bool = False
    after: str = ""


def _is_in_store(caller: Caller, wanted: _Wanted) -> bool:
    """Whether the service's own store is meant. A token for some databases sees nothing else."""
    return wanted.database is None and caller.databases is None


def _check_number(names: Sequence[Any]) -> None:
    if len(names) > DATABASES_MAX:
        raise RequestMalformed(
            f"there are {len(names)} databases, and at most {DATABASES_MAX} are searched at once: add database=NAME"
        )


def _named(found: Iterable[FoundRecord]) -> list[tuple[Record, str | None]]:
    return [(one.record, one.name[1]) for one in found]


def _as_page(found: Iterable[tuple[Record, str | None]], after: str | None = None) -> RecordsResponse:
    return RecordsResponse([_shown(view(record), database) for record, database in found], after)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 10**10:
        raise RequestMalformed("older_than must be a number of seconds, zero or more")
    return seconds


def _owns(caller: Caller, scope: str) -> bool:
    return tenant_of(scope) == caller.tenant and scope.startswith(f"{caller.environment}:")


def _shown(seen: RecordView, database: str | None = None, *, whole: bool = False) -> RecordResponse:
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
        database=database,
    )
