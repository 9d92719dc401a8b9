"""
`open_service`: everything that `onceward serve` runs, opened and put together.

    address /v1/db ...        SQL with keys and plans
            /v1/records ...   what is in doubt, for operators
            /v1/decisions     who decided what, for operators
            /api/v1/balance ...   deltas, checkpoints, balances
            /v1/journal       what was tried, for operators
            /v1/usage         what a tenant has used and has left
            /mcp              the same for agents, if it is switched on
            /hooks/{source}   webhooks, received once and processed once
            /health, /ready   for whoever watches
            /openapi.json, /  what there is, for programs and people
            /.well-known/idempotency   what is promised about keys
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from onceward._core.errors import (
    AlreadySettled,
    BalanceExhausted,
    ConfigurationError,
    Forbidden,
    IllegalMove,
    OncewardError,
    OutcomeUnknown,
    QuotaExceeded,
    TokenInvalid,
)
from onceward._core.sealing import make_sealer
from onceward._core.terms import apply_options
from onceward.audit import SERVICE, Decision, DecisionLog, Operator
from onceward.gate import Gate
from onceward.gate.sealed_store import SealedStore
from onceward.http.server.handler_outcomes import gate_options
from onceward.http.server.problems import WELL_KNOWN
from onceward.http.server.profile import PROFILES, Profile, profile
from onceward.http.server.published_contract import contract_response
from onceward.journal import AsyncJournal
from onceward.messaging.inbox import AsyncInbox
from onceward.protocol.errors import (
    CustomerUnknown,
    DatabaseUnknown,
    DeltaRefused,
    DeltaUnknown,
    EngineClosed,
    NameInvalid,
    NothingToReceipt,
    PeriodClosed,
    PeriodNotOpen,
    ReferenceReused,
    ResourceNotFound,
    SqlError,
    VerificationPending,
)
from onceward.runtime.environment import REAL
from onceward.service.access import (
    Accounts,
    Allowance,
    AsyncAccess,
    FloodControl,
    NewToken,
    Role,
    Totals,
    trusted_networks,
)
from onceward.service.access.access_tables import OtherUsage
from onceward.service.decisions.app import GROUP as DECISIONS
from onceward.service.decisions.app import DecisionsApp
from onceward.service.hooks.app import GROUP as HOOKS
from onceward.service.hooks.app import HooksApp
from onceward.service.journal.app import GROUP as JOURNAL
from onceward.service.journal.app import JournalApp
from onceward.service.journal.journal_observer import JournalObserver, open_service_journal
from onceward.service.ledger.app import GROUP as BALANCE
from onceward.service.ledger.app import LedgerApp
from onceward.service.ledger.service_ledger import open_service_ledger
from onceward.service.logs import AccessLogMiddleware
from onceward.service.records.app import GROUP as RECORDS
from onceward.service.records.app import RecordsApp
from onceward.service.seal import TenantSeal, open_tenant_seal
from onceward.service.settings import DATABASES, Settings, store_url_of
from onceward.service.sql.app import GROUP as SQL
from onceward.service.sql.app import SqlApp
from onceward.service.sql.database_usage import measure_usage
from onceward.service.sql.engine import SqliteEngine
from onceward.service.sql.limits import Limits
from onceward.service.sql.ran_operations import find_ran
from onceward.service.sql.statement_parser import only_reads
from onceward.service.usage.app import GROUP as USAGE
from onceward.service.usage.app import UsageApp
from onceward.service.web.calls import Authenticator
from onceward.service.web.endpoints import ApiEndpoint, strict_application
from onceward.service.web.openapi import openapi_document, openapi_page
from onceward.service.web.problems import (
    HeadTooLarge,
    InternalError,
    MediaTypeUnsupported,
    MethodNotAllowed,
    Overloaded,
    error_response,
    log,
    problem_page,
    starlette_response,
)
from onceward.service.web.readiness import Readiness
from onceward.stores import open_store

FIRST_TENANT = "demo"
UPKEEP_SECONDS = 30.0
"""Between two looks after tenants; a count itself is made once a minute at most."""
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


REFUSALS: tuple[type[OncewardError], ...] = (
    *(TokenInvalid, Forbidden, BalanceExhausted, QuotaExceeded, IllegalMove, AlreadySettled, OutcomeUnknown),
    *(ResourceNotFound, MethodNotAllowed, MediaTypeUnsupported, HeadTooLarge, InternalError, Overloaded),
    *(SqlError, DatabaseUnknown, NameInvalid, EngineClosed),
    *(ReferenceReused, PeriodClosed, PeriodNotOpen, VerificationPending, DeltaRefused, CustomerUnknown, DeltaUnknown),
    NothingToReceipt,
)
"""Errors besides those of the middleware. Each has a page, which the `type` of its problem document links to."""


class Service(NamedTuple):
    """An application, and what it is made of."""

    app: Any
    engine: SqliteEngine
    access: AsyncAccess
    accounts: Accounts
    """What everybody uses of this process; the server holds connections on them."""
    first_token: NewToken | None
    """Of a tenant that was made because there was none. Shown once."""


@asynccontextmanager
async def open_service(settings: Settings) -> AsyncIterator[Service]:
    """Everything open, for the length of an `async with` block; closed in order, work under way finished first."""
    url = store_url_of(settings)
    _make_private(settings.folder)
    async with AsyncExitStack() as stack:
        seal = None if not settings.seal_keys else _tenant_seal(url, settings.seal_keys)
        if seal is not None:
            stack.callback(seal.close)
        sealer = make_sealer(seal, sealed_only=settings.sealed_only)
        store = open_store(url)
        stack.callback(store.close)
        with Gate(store, scope="service").scoped("live:service") as gate:
            gate.records.get("ready")  # Makes the tables, or says why it cannot.
        decision_log = await asyncio.to_thread(DecisionLog.open, url)
        stack.callback(decision_log.close)
        databases = Path(settings.folder) / DATABASES
        usage: list[OtherUsage] = [partial(measure_usage, databases)]
        access = await _access(url, settings, usage)
        stack.push_async_callback(access.close)
        limits = Limits(statement_seconds=settings.statement_seconds, database_bytes=settings.database_bytes)
        engine = SqliteEngine(
            databases,
            limits=limits,
            writers=settings.writers,
            readers=settings.readers,
            retain=settings.retain,
            after_expiry="run",
            seal=seal,
            sealed_only=settings.sealed_only,
        )
        stack.push_async_callback(engine.close)
        journal = open_service_journal(url) if settings.journal == "on" else None
        if journal is not None:
            stack.push_async_callback(journal.close)
        upkeep = asyncio.create_task(_keep_up(access, journal, settings.journal_retain))
        stack.push_async_callback(_cancel, upkeep)
        if settings.relay:
            await stack.enter_async_context(_run_relay(url, settings.relay))
        flood = FloodControl(REAL.monotonic, burst=settings.flood_burst)
        observer = None if journal is None else JournalObserver(journal)
        accounts = _accounts(settings)
        authenticator = Authenticator(access, flood, trusted_networks(settings.trusted_proxies), observer, accounts)
        chosen = profile(PROFILES["persql"], retain=settings.retain)
        ledger = await stack.enter_async_context(open_service_ledger(url, settings, seal))
        sql, records = (
            SqlApp(engine, authenticator, profile=chosen, **_prices(settings)),
            RecordsApp(store if sealer is None else SealedStore(store, sealer), authenticator, decision_log),
        )
        decided = DecisionsApp(decision_log, authenticator)
        inbox = await _inbox(url, settings, stack, seal)
        usage += [ledger.tables.usage, lambda tenants: inbox.usage()]
        hooks = HooksApp(inbox, authenticator)
        balance = LedgerApp(ledger, authenticator, profile=profile(PROFILES["pacspace"], retain=settings.retain))
        shown = UsageApp(authenticator, **_prices(settings))
        apps = [
            (SQL, sql.endpoints(), sql.app()),
            (RECORDS, records.endpoints(), records.app()),
            (DECISIONS, decided.endpoints(), decided.app()),
            (BALANCE, balance.endpoints(), balance.app()),
            (HOOKS, hooks.endpoints(), hooks.app()),
            (USAGE, shown.endpoints(), shown.app()),
        ]
        if journal is not None:
            noted = JournalApp(journal, authenticator)
            apps.append((JOURNAL, noted.endpoints(), noted.app()))
        app = _compose(chosen, apps, Readiness(access, authenticator))
        if settings.mcp:
            _offer_tools(app, authenticator)
        first_token = await _first_token(access, decision_log)
        yield Service(AccessLogMiddleware(app), engine, access, accounts, first_token)


def _tenant_seal(url: str, path: str) -> TenantSeal:
    from onceward.gate import Sealed  # Here: it needs a package that only those have who seal.

    return open_tenant_seal(url, Sealed.from_file(path), create=True)


class _Prices(TypedDict):
    """What things cost, and how many databases there may be."""

    price: int
    charge_failed: bool
    databases_max: int


def _prices(settings: Settings) -> _Prices:
    return {
        "price": settings.price,
        "charge_failed": settings.charge_failed == "on",
        "databases_max": settings.databases_max,
    }


async def _access(url: str, settings: Settings, usage: list[OtherUsage]) -> AsyncAccess:
    """Tokens, tenants and balances. `usage` measures what tenants hold elsewhere; more may be added to it later."""
    access = await AsyncAccess.open(
        url,
        scope_by=settings.scope_by,
        create=True,
        elsewhere=lambda tenants: [held for measure in usage for held in measure(tenants)],
        ran=partial(find_ran, Path(settings.folder) / DATABASES),
    )
    try:
        await access.check()
    except BaseException:
        await access.close()
        raise
    return access


def _compose(chosen: Profile, apps: list[tuple[str, list[ApiEndpoint], Starlette]], readiness: Readiness) -> Starlette:
    document = openapi_document("Onceward", [(name, endpoints) for name, endpoints, _ in apps], chosen)
    shown = openapi_page(document)
    terms = apply_options(Gate("memory://", scope="terms").agreed(), gate_options(chosen))

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def described(request: Request) -> Response:
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def looked_at(request: Request) -> Response:
        return HTMLResponse(
            shown, headers={"content-security-policy": PAGE_POLICY, "x-content-type-options": "nosniff"}
        )

    async def promised(request: Request) -> Response:
        code = request.path_params.get("code")
        reply = contract_response(chosen, terms) if code is None else problem_page(code, chosen, REFUSALS)
        return error_response(ResourceNotFound()) if reply is None else starlette_response(reply)

    # The apps' come first: routes are tried in order, and these are asked for most.
    routes: list[BaseRoute] = [route for _, _, app in apps for route in app.routes]
    routes += [
        Route("/health", health),
        Route("/ready", readiness.serve),
        Route("/openapi.json", described),
        Route("/", looked_at),
        Route(WELL_KNOWN, promised),
        Route(WELL_KNOWN + "/{code}", promised),
    ]
    return strict_application(routes)


def _accounts(settings: Settings) -> Accounts:
    """What each tenant and address may use of this process."""
    allowance = Allowance(
        connections=settings.connections_per_address,
        body_bytes=settings.body_bytes_per_tenant,
        cpu_per_second=settings.cpu_per_second,
        cpu_burst=settings.cpu_burst,
    )
    return Accounts(REAL.monotonic, allowance, Totals(connections=settings.connections, body_bytes=settings.body_bytes))


def _offer_tools(app: Starlette, authenticator: Authenticator) -> None:
    """The service's tools for agents, in front of its API."""
    from onceward.service.mcp.app import McpApp  # Here: most services are called by programs.

    app.router.routes.extend(McpApp(app, authenticator, only_reads=only_reads).app().routes)


async def _inbox(url: str, settings: Settings, stack: AsyncExitStack, seal: TenantSeal | None) -> AsyncInbox:
    """Where webhooks go, and the threads that process them."""
    if settings.hooks_path:
        _make_importable(settings.hooks_path)
    inbox = AsyncInbox(url, stored_sources=True, seal=seal, sealed_only=settings.sealed_only)
    stack.push_async_callback(inbox.close)
    if settings.hooks_threads:
        working = inbox.working(settings.hooks_threads, stop_seconds=settings.shutdown_seconds)
        await stack.enter_async_context(working)
    return inbox


async def _keep_up(access: AsyncAccess, journal: AsyncJournal | None, retain: float) -> None:
    """Upkeep in the background: count for quotas, give back lapsed reservations, forget old notes."""
    while True:
        try:
            await access.count()
            await access.sweep()
            if journal is not None:
                await journal.prune(retain=retain)
        except OncewardError as error:
            log.warning("upkeep of tenants failed and will be tried again in %g s: %s", UPKEEP_SECONDS, error)
        await REAL.asleep(UPKEEP_SECONDS)


@asynccontextmanager
async def _run_relay(url: str, file: str) -> AsyncIterator[None]:
    """A relay in a thread of its own, for the length of a block; tries that are under way are waited for at the end."""
    from onceward.messaging.outbox.relay_config import relay_from_file  # Here: most services have no outbox.

    relay = await asyncio.to_thread(relay_from_file, url, file)
    running = asyncio.create_task(asyncio.to_thread(relay.run))
    running.add_done_callback(_log_failure)
    try:
        yield
    finally:
        relay.stop()
        await asyncio.wait({running})
        await asyncio.to_thread(relay.close)


def _log_failure(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log.error("the relay has stopped, and messages are not delivered: %s", error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _first_token(access: AsyncAccess, decision_log: DecisionLog) -> NewToken | None:
    """For a service without tenants: one to try things with, and a token for it."""
    if await access.tenants(limit=1):
        return None
    operator = Operator("onceward serve", SERVICE, "there was no tenant")
    about = Decision("tenant.create", f"tenant {FIRST_TENANT}", operator, tenant=FIRST_TENANT)
    with decision_log.deciding(about):  # Before the first request: nobody waits for this.
        await access.create_tenant(FIRST_TENANT)
    with decision_log.deciding(about._replace(action="token.create", environment="test")) as made:
        new = await access.create_token(FIRST_TENANT, environment="test", role=Role.ADMIN)
        made.after = None if new is None else {"id": new.view.id, "role": str(new.view.role)}
    return new


def _make_importable(folder: str) -> None:
    sys.path.insert(0, str(Path(folder).resolve()))


def _make_private(folder: str) -> None:
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(folder).chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"the service cannot use the folder {folder}: {error.strerror}") from None
