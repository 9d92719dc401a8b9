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
            /dashboard        pages for people, with the tokens of the API
            /health, /ready   for whoever watches
            /metrics          for Prometheus, if it is switched on
            /openapi.json, /  what there is, for programs and people
            /.well-known/idempotency   what is promised about keys
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from logging import INFO, WARNING
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypedDict, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from onceward._core.errors import OncewardError, RateLimitError, StoreUnavailable
from onceward._core.sealing import make_sealer
from onceward.audit import SERVICE, Decision, DecisionLog, Operator
from onceward.dashboard.assets import serve_asset
from onceward.gate import Gate
from onceward.gate.sealed_store import SealedStore
from onceward.http.server.problems import WELL_KNOWN
from onceward.http.server.profile import PROFILES, profile
from onceward.http.server.published_contract import document_response
from onceward.journal import AsyncJournal
from onceward.messaging.inbox import AsyncInbox
from onceward.observe import Metrics, StoreGauges, listen
from onceward.protocol.errors import ResourceNotFound
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
from onceward.service.access.access_tables import OtherUsage, RanLookup
from onceward.service.decisions.app import DecisionsApp
from onceward.service.first_token import FIRST_TENANT, NONE
from onceward.service.hooks.app import HooksApp
from onceward.service.journal.app import JournalApp
from onceward.service.journal.journal_observer import JournalObserver, open_service_journal
from onceward.service.ledger.app import LedgerApp
from onceward.service.ledger.service_ledger import open_service_ledger
from onceward.service.logs import AccessLogMiddleware
from onceward.service.network.http_protocol import HEAD_BYTES_MAX
from onceward.service.planted_tables import check_tables
from onceward.service.private_folder import make_private_folder
from onceward.service.records.app import RecordsApp
from onceward.service.seal import TenantSeal, open_tenant_seal
from onceward.service.settings import Settings, is_stateless, store_url_of
from onceward.service.sql.app import SqlApp
from onceward.service.sql.engine import SqlEngine
from onceward.service.sql.limits import Limits
from onceward.service.sql.worker_sandbox import SandboxReport
from onceward.service.sql_backend import dialect_of, open_sql
from onceward.service.sql_home import find_sql_home
from onceward.service.usage.app import UsageApp
from onceward.service.web.api_page import ASSETS, POLICY, api_page
from onceward.service.web.calls import Authenticator, CallObserver
from onceward.service.web.endpoints import BODY_BYTES_MAX, ApiEndpoint, strict_application
from onceward.service.web.known_addresses import KnownAddresses
from onceward.service.web.metrics_endpoint import MetricsEndpoint, MetricsObserver
from onceward.service.web.openapi import openapi_document
from onceward.service.web.problems import error_response, log, problem_page, starlette_response
from onceward.service.web.readiness import Readiness
from onceward.service.web.service_contract import AppContract, all_refusals, service_contract
from onceward.stores import open_store

UPKEEP_SECONDS = 30.0
"""Between two looks after tenants; a count itself is made once a minute at most."""


class Service(NamedTuple):
    """An application, and what it is made of."""

    app: Any
    engine: SqlEngine | None
    """None: without SQL."""
    access: AsyncAccess
    accounts: Accounts
    """What everybody uses of this process; the server holds connections on them."""
    first_token: NewToken | None
    """Of a tenant that was made because there was none. Shown once."""
    confined: SandboxReport | None
    """What holds tenants' SQL in; None: there is none."""


@asynccontextmanager
async def open_service(settings: Settings) -> AsyncIterator[Service]:
    """Everything open, for the length of an `async with` block; closed in order, work under way finished first."""
    url, limits = store_url_of(settings), limits_of(settings)
    if not is_stateless(settings):
        make_private_folder(settings.folder)
    await asyncio.to_thread(check_tables, url)
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
        sql = await stack.enter_async_context(open_sql(settings, limits, seal, sealer))
        if sql.confined is not None:
            log.log(WARNING if sql.confined.missing else INFO, "tenants' SQL is confined by: %s", sql.confined.line())
        usage: list[OtherUsage] = [sql.usage]
        access = await _access(url, settings, usage, sql.ran)
        stack.push_async_callback(access.close)
        journal = open_service_journal(url) if settings.journal == "on" else None
        if journal is not None:
            stack.push_async_callback(journal.close)
        upkeep = asyncio.create_task(_keep_up(access, journal, settings, url))
        stack.push_async_callback(_cancel, upkeep)
        if settings.relay:
            await stack.enter_async_context(_run_relay(url, settings.relay))
        flood = FloodControl(REAL.monotonic, burst=settings.flood_burst)
        observer: CallObserver | None = None if journal is None else JournalObserver(journal)
        metrics = None
        if settings.metrics:
            metrics = Metrics()
            metrics.add_collector(StoreGauges(store))
            stack.callback(listen(metrics))
            observer = MetricsObserver(metrics, observer)
        accounts = _accounts(settings)
        authenticator = Authenticator(access, flood, trusted_networks(settings.trusted_proxies), observer, accounts)
        stack.push_async_callback(authenticator.parser.close)
        ledger = await stack.enter_async_context(open_service_ledger(url, settings, seal))
        inbox = await _inbox(url, settings, stack, seal)
        usage += [ledger.tables.usage, lambda tenants: inbox.usage()]
        shown = store if sealer is None else SealedStore(store, sealer)
        parts = _Parts(authenticator, sql.engine, shown, sql.records, ledger, inbox, decision_log, journal)
        readiness = Readiness(access, authenticator, check=sql.check)
        app = _compose(settings, _apps(settings, limits, parts), authenticator, readiness)
        if metrics is not None:
            shown_to = trusted_networks(settings.metrics)
            app.router.routes.append(Route("/metrics", MetricsEndpoint(metrics, shown_to, authenticator.address).serve))
        if settings.dashboard == "on":
            stack.callback(_add_dashboard(app, url, settings, parts))
        first = None if settings.first_token == NONE else await _first_token(access, decision_log)
        yield Service(AccessLogMiddleware(KnownAddresses(app)), sql.engine, access, accounts, first, sql.confined)


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


async def _access(url: str, settings: Settings, usage: list[OtherUsage], ran: RanLookup) -> AsyncAccess:
    """Tokens, tenants and balances. `usage` measures what tenants hold elsewhere; more may be added to it later."""
    access = await AsyncAccess.open(
        url,
        scope_by=settings.scope_by,
        create=True,
        elsewhere=lambda tenants: [held for measure in usage for held in measure(tenants)],
        ran=ran,
    )
    try:
        await access.check()
    except BaseException:
        await access.close()
        raise
    return access


class ServiceApp(Protocol):
    """One app of the service."""

    def contract(self) -> AppContract:
        """What is published about it."""

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""


class _Parts(NamedTuple):
    """What apps work on. None of it is needed to say what they promise."""

    authenticator: Any = SimpleNamespace(access=None)
    engine: Any = None
    store: Any = None
    databases: Any = None
    ledger: Any = None
    inbox: Any = None
    log: Any = None
    journal: AsyncJournal | None = None


def limits_of(settings: Settings) -> Limits:
    """The limits of tenants' SQL."""
    return Limits(statement_seconds=settings.statement_seconds, database_bytes=settings.database_bytes)


def _apps(settings: Settings, limits: Limits, parts: _Parts) -> list[ServiceApp]:
    """The apps of a service with these settings."""
    door, retain = parts.authenticator, settings.retain
    in_flight: Any = {"wait": "wait", "409": "refuse", "202": "accept"}[settings.in_flight]
    sql = profile(PROFILES["persql"], retain=retain, in_flight=in_flight, wait=settings.in_flight_seconds)
    apps: list[ServiceApp] = [
        RecordsApp(parts.store, door, parts.log, parts.databases),
        DecisionsApp(parts.log, door),
        LedgerApp(parts.ledger, door, profile=profile(PROFILES["pacspace"], retain=retain)),
        HooksApp(parts.inbox, door),
        UsageApp(door, **_prices(settings)),
    ]
    if not settings.without_sql:
        dialect, prices = dialect_of(settings), _prices(settings)
        apps.insert(0, SqlApp(parts.engine, door, profile=sql, limits=limits, dialect=dialect, **prices))
    if settings.journal == "on":
        apps.append(JournalApp(cast("AsyncJournal", parts.journal), door))
    return apps


def contract_of_service(settings: Settings) -> dict[str, Any]:
    """What a service with these settings publishes about itself. Nothing is opened."""
    apps = _apps(settings, limits_of(settings), _Parts())
    return _published(settings, [*apps, *_tools(settings, None, None)])


HEALTH = AppContract(
    "Health",
    [
        ApiEndpoint("GET", "/health", cast("Any", None), "Whether the process is alive.", public=True),
        ApiEndpoint("GET", "/ready", cast("Any", None), "Whether its store answers.", public=True,
                    refusals=(StoreUnavailable, RateLimitError)),
    ],
)  # fmt: skip
"""For whoever watches: `_compose` answers these by itself."""


def _published(settings: Settings, apps: list[ServiceApp]) -> dict[str, Any]:
    limits = {
        "headBytesMax": HEAD_BYTES_MAX,
        "bodyBytesMax": BODY_BYTES_MAX,
        "receiveSeconds": settings.receive_seconds,
    }
    return service_contract([*(app.contract() for app in apps), HEALTH], retain=settings.retain, limits=limits)


def _compose(
    settings: Settings, apps: list[ServiceApp], authenticator: Authenticator, readiness: Readiness
) -> Starlette:
    parts = [app.contract() for app in apps]
    document = openapi_document("Onceward", [(one.name, one.endpoints, one.refusal_profile) for one in parts])
    shown = api_page(document, dashboard=settings.dashboard == "on")

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def described(request: Request) -> Response:
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def looked_at(request: Request) -> Response:
        return HTMLResponse(shown, headers={"content-security-policy": POLICY, "x-content-type-options": "nosniff"})

    async def promised(request: Request) -> Response:
        code = request.path_params.get("code")
        reply = document_response(published) if code is None else problem_page(code, all_refusals(published))
        return error_response(ResourceNotFound()) if reply is None else starlette_response(reply)

    # The apps' come first: routes are tried in order, and these are asked for most.
    routes: list[BaseRoute] = [route for app in apps for route in app.app().routes]
    routes += [
        Route("/health", health),
        Route("/ready", readiness.serve),
        Route("/openapi.json", described),
        Route("/", looked_at),
        Route(ASSETS + "/{name}", serve_asset),
        Route(WELL_KNOWN, promised),
        Route(WELL_KNOWN + "/{code}", promised),
    ]
    composed = strict_application(routes)
    tools = _tools(settings, composed, authenticator)
    for one in tools:
        composed.router.routes.extend(one.app().routes)
    published = _published(settings, [*apps, *tools])
    return composed


def _accounts(settings: Settings) -> Accounts:
    """What each tenant and address may use of this process."""
    allowance = Allowance(
        connections=settings.connections_per_address,
        body_bytes=settings.body_bytes_per_tenant,
        cpu_per_second=settings.cpu_per_second,
        cpu_burst=settings.cpu_burst,
    )
    return Accounts(REAL.monotonic, allowance, Totals(connections=settings.connections, body_bytes=settings.body_bytes))


def _add_dashboard(app: Starlette, url: str, settings: Settings, parts: _Parts) -> Callable[[], None]:
    """Add the dashboard's addresses; the result ends what it has open."""
    from onceward.service.service_dashboard import make_service_dashboard  # Here: it can be switched off.

    made = make_service_dashboard(
        url,
        parts.store,
        parts.log,
        parts.authenticator,
        parts.ledger,
        parts.databases,
        only_reads=None if settings.without_sql else dialect_of(settings).only_reads,
        databases_max=settings.databases_max,
        show_values=settings.dashboard_values,
    )
    made.add_to(app)
    return made.dashboard.data.close


def _tools(settings: Settings, api: Any, authenticator: Any) -> list[ServiceApp]:
    """The service's tools for agents, in front of its API, if they are switched on."""
    if not settings.mcp:
        return []
    from onceward.service.mcp.app import McpApp  # Here: most services are called by programs.

    sql = None if settings.without_sql else dialect_of(settings)
    return [McpApp(api, authenticator, only_reads=None if sql is None else sql.only_reads)]


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


async def _keep_up(access: AsyncAccess, journal: AsyncJournal | None, settings: Settings, url: str) -> None:
    """Upkeep in the background: count for quotas, give back lapsed reservations, forget old notes."""
    while True:
        try:
            if settings.without_sql:  # Where there are databases, those count who see them.
                access.leave_counting(to_others=await asyncio.to_thread(find_sql_home, url) is not None)
            await access.count()
            await access.sweep()
            if journal is not None:
                await journal.prune(retain=settings.journal_retain)
        except OncewardError as error:
            log.warning("tenant upkeep failed and will be tried again in %g s: %s", UPKEEP_SECONDS, error)
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
