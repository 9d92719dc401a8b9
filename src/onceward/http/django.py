"""
`IdempotencyMiddleware` for Django: it runs in front of the views, where sessions and users are known.

    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware",
                  "onceward.http.django.IdempotencyMiddleware"]
    ONCEWARD = {"GATE": "shop.gates.gate", "SCOPE": "shop.gates.scope_of", "PROFILE": "ietf"}

For plain and async views, under WSGI and ASGI. The view finds its operation in `request.operation`. `ASYNC_GATE` is
for async views; without it they are served through the blocking one, in a thread. Every field of a profile may be
set in capitals (`"REQUIRE_KEY": True`), or differently for single views:

    @idempotent(guarantee="keyed", require_key=True)
    def charge(request): ...

    @not_idempotent
    def webhook(request): ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import Any, Generic, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.db import connections
from django.urls import Resolver404, get_resolver, resolve
from django.utils.module_loading import import_string

from onceward._core.errors import ConfigurationError
from onceward._core.reply import Reply
from onceward.gate import AsyncGate, Gate
from onceward.http.server.app_routes import OVERRIDES_ATTRIBUTE, sample_paths, unmatched_warning
from onceward.http.server.app_routes import idempotent as idempotent
from onceward.http.server.app_routes import not_idempotent as not_idempotent
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.django_commits import CommitWatch, watch_commits, watch_connections
from onceward.http.server.django_messages import (
    SCOPE_LABEL,
    begin_recording,
    buffer_body,
    close_response,
    django_response,
    enclosing_operation,
    own_response,
    request_from_django,
    streaming_response,
)
from onceward.http.server.django_view_task import DjangoViewTask
from onceward.http.server.handler_run import HandlerReport
from onceward.http.server.problems import WELL_KNOWN
from onceward.http.server.profile import Profile, profile
from onceward.http.server.profile_overrides import ProfileOverrides
from onceward.http.server.pull_exchange import PulledResponse, PullExchange
from onceward.http.server.push_exchange import PushExchange
from onceward.http.server.request_admission import AdmittedRequest, IncomingRequest, RequestAdmission, log
from onceward.runtime.flow_driver import PendingCancellation, await_to_end

G = TypeVar("G", Gate, AsyncGate)

_RAISED = "_onceward_raised"


class IdempotencyMiddleware:
    """Runs a keyed request once, and replays its response to every retry. Configured by `settings.ONCEWARD`."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        options = dict(getattr(settings, "ONCEWARD", None) or {})
        gate, async_gate = _gate_from(options.pop("GATE", None)), _gate_from(options.pop("ASYNC_GATE", None))
        self._get_response: Any = get_response
        self._awaits = iscoroutinefunction(get_response)
        self._settings: _DjangoSettings[Any]
        if self._awaits:
            markcoroutinefunction(self)
        if self._awaits and async_gate is not None:
            self._settings = _DjangoSettings(_of_kind(async_gate, AsyncGate, "ASYNC_GATE"), options)
            self._serve: Any = self._serve_awaiting
            return
        self._settings = _DjangoSettings(_of_kind(gate, Gate, "GATE"), options)
        if self._awaits:
            self._get_response = async_to_sync(get_response)
            self._serve = self._serve_in_thread
        else:
            self._serve = self._serve_blocking

    def __call__(self, request: Any) -> Any:
        """Serve one request."""
        if self._awaits:
            return self._call_awaiting(request)
        found = self._settings.admit(request)
        if found is None:
            return self._get_response(request)
        return django_response(found) if isinstance(found, Reply) else self._serve(request, *found)

    async def _call_awaiting(self, request: Any) -> Any:
        found = self._settings.admit(request)
        if isinstance(found, Reply):
            return django_response(found)
        if found is not None:
            return await self._serve(request, *found)
        # Without an awaiting gate `get_response` is adapted, and is called in a thread.
        if iscoroutinefunction(self._get_response):
            return await self._get_response(request)
        return await sync_to_async(self._get_response, thread_sensitive=True)(request)

    def process_view(self, request: Any, view: Any, args: Any, kwargs: Any) -> None:
        """Called in the view's thread, before the view: watch what its database connections commit."""
        if hasattr(request, "operation"):
            watch_connections()

    def process_exception(self, request: Any, exception: Exception) -> None:
        """Keep what a view raised, before Django makes a response of it."""
        setattr(request, _RAISED, exception)

    # --- both colours ---

    def _serve_blocking(self, request: Any, admission: RequestAdmission[Gate], admitted: AdmittedRequest) -> Any:
        connection = _DjangoConnection(request, self._settings.now)
        exchange = connection.exchange = PullExchange(admission, admitted)
        reply = exchange.prepare(connection)
        if exchange.passes:
            return self._get_response(request)
        if reply is None:
            reply = exchange.hold()
        return connection.run(self._get_response) if reply is None else django_response(reply)

    async def _serve_in_thread(self, request: Any, admission: RequestAdmission[Gate], admitted: AdmittedRequest) -> Any:
        serve = sync_to_async(self._serve_blocking, thread_sensitive=True)
        # Django cancels a request whose client has left. The view goes on all the same.
        kept = PendingCancellation()
        response = await await_to_end(serve(request, admission, admitted), kept)
        if (cancelled := kept.taken()) is not None:
            await sync_to_async(close_response, thread_sensitive=True)(response)
            raise cancelled
        return response

    async def _serve_awaiting(
        self, request: Any, admission: RequestAdmission[AsyncGate], admitted: AdmittedRequest
    ) -> Any:
        connection = DjangoViewTask(self._get_response, request, _handler_report, self._settings.now)
        exchange = connection.exchange = PushExchange(admission, admitted)
        reply = await exchange.prepare(connection)
        if exchange.passes:
            return await self._get_response(request)
        return await connection.serve() if reply is None else django_response(reply)


class _DjangoSettings(Generic[G]):
    """`settings.ONCEWARD`, as request admissions: one for the project, and one for each decorated view."""

    def __init__(self, gate: G, options: dict[str, Any]) -> None:
        scope, well_known = options.pop("SCOPE", None), options.pop("WELL_KNOWN", WELL_KNOWN)
        routes, base = options.pop("ROUTES", ()), options.pop("PROFILE", "default")
        self._gate: G = gate
        self._scope = import_string(scope) if isinstance(scope, str) and _is_path(scope) else scope
        self._profile = profile(base, **{name.lower(): value for name, value in options.items()})
        self._well_known = well_known
        self._routes = list(routes)
        self._admission: RequestAdmission[G] = self._made(self._profile, self._routes)
        self._others: dict[int, tuple[ProfileOverrides, RequestAdmission[G]]] = {}
        self._methods: dict[Any, frozenset[str]] = {}
        self.now = gate.environment.monotonic

    def _made(self, chosen: Profile, routes: Any = ()) -> RequestAdmission[G]:
        made: RequestAdmission[G] = RequestAdmission(
            self._gate, scope=self._scope, profile_=chosen, routes=routes, well_known=self._well_known, changes={}
        )
        return made

    def admit(self, request: Any) -> tuple[RequestAdmission[G], AdmittedRequest] | Reply | None:
        """A keyed request with its admission; a reply to send at once; or None: pass the request through."""
        urlconf, admission = getattr(request, "urlconf", None), self._admission
        self._look(urlconf)
        methods = self._methods.get(urlconf) or self._methods_in(urlconf)
        if request.method.upper() not in methods and not request.path.startswith(self._well_known or "\0"):
            return None
        overrides = _overrides_of_view(request)
        if overrides == (None,):
            return None
        if overrides is not None:
            admission = self._for(overrides[0])
        admitted = admission.admit(request_from_django(request, admission.routes.single), enclosing_operation(request))
        return (admission, admitted) if isinstance(admitted, AdmittedRequest) else admitted

    def _look(self, urlconf: Any) -> None:
        """Once: warn about routes in the settings that no URL of the project matches."""
        routes, self._routes = self._routes, []
        for route in routes:
            if not any(_resolves(sample, urlconf) for sample in sample_paths(route.path)):
                log.warning(unmatched_warning(route, None))

    def _methods_in(self, urlconf: Any) -> frozenset[str]:
        """Every HTTP method that is handled somewhere: from the settings, and from decorators."""
        found = self._methods[urlconf] = self._admission.routes.methods.union(
            *(
                map(str.upper, overrides[0].get("methods", ()))
                for overrides in _overrides_in(get_resolver(urlconf))
                if overrides[0] is not None
            )
        )
        return found

    def _for(self, changes: ProfileOverrides) -> RequestAdmission[G]:
        found = self._others.get(id(changes))
        if found is None:
            found = self._others[id(changes)] = (changes, self._made(profile(self._profile, **changes)))
        return found[1]


def _resolves(path: str, urlconf: Any) -> bool:
    try:
        resolve(path, urlconf)
    except Resolver404:
        return False
    return True


def _overrides_in(resolver: Any) -> Iterator[Any]:
    """The overrides of every decorated view of a project."""
    for one in resolver.url_patterns:
        if hasattr(one, "url_patterns"):
            yield from _overrides_in(one)
        elif (overrides := getattr(one.callback, OVERRIDES_ATTRIBUTE, None)) is not None:
            yield overrides


def _overrides_of_view(request: Any) -> Any:
    """The overrides that the view's decorator stored: a tuple; None if the view has no decorator."""
    try:
        view = resolve(request.path_info, getattr(request, "urlconf", None)).func
    except Resolver404:
        return None
    return getattr(view, OVERRIDES_ATTRIBUTE, None)


def _gate_from(setting: Any) -> Any:
    found = import_string(setting) if isinstance(setting, str) else setting
    return found() if callable(found) else found


def _of_kind(found: Any, kind: type[G], name: str) -> G:
    if not isinstance(found, kind):
        raise ConfigurationError(
            f'settings.ONCEWARD["{name}"] is of type {type(found).__name__}. Give the path of your {kind.__name__}, or '
            'of a function that makes one, for example "shop.gates.gate"'
        )
    return found


def _is_path(scope: str) -> bool:
    """Whether a text names a function, such as "shop.gates.scope_of"; or is a scope, such as "live:shop"."""
    return "." in scope and ":" not in scope


# --- running a view under a blocking gate ---


class _DjangoConnection:
    """One request to a view, under a blocking gate."""

    scope_label = SCOPE_LABEL
    exchange: PullExchange

    def __init__(self, request: Any, now: Callable[[], float]) -> None:
        self._request, self._now = request, now

    def call_scope(self, scope_of: Callable[[IncomingRequest], Any], incoming: IncomingRequest) -> object:
        """Call the scope function; it may be async."""
        found = scope_of(incoming)
        return async_to_sync(_awaited)(found) if isawaitable(found) else found

    def load_body(self, admitted: AdmittedRequest, body: BodyBuffer) -> None:
        """Read the whole body."""
        buffer_body(self._request, admitted, body, self._now)

    def run(self, get_response: Callable[[Any], Any]) -> Any:
        """Run the view. The response: whole, once it is stored; or a stream, which is stored when it ends."""
        request, exchange = self._request, self.exchange
        request.operation = exchange.operation
        try:
            with watch_commits() as commits:
                response = get_response(request)
            begin_recording(exchange.recorder, response)
        except BaseException as error:
            exchange.close()
            return django_response(exchange.failed(error))
        if not response.streaming:
            exchange.close()
            exchange.recorder.feed(response.content, more=False)
            instead = exchange.completed(_handler_report(request, commits))
            return own_response(response, exchange.handler_response()) if instead is None else django_response(instead)

        def release() -> None:
            close_response(response)
            exchange.close()

        pulled = PulledResponse(exchange, _pieces(response), release, lambda: _handler_report(request, commits))
        if pulled.until_passing():
            return streaming_response(response, pulled, exchange.begin())
        return (
            own_response(response, exchange.handler_response())
            if pulled.substitute is None
            else django_response(pulled.substitute)
        )


async def _awaited(found: Awaitable[object]) -> object:
    return await found


def _pieces(response: Any) -> Iterator[tuple[bytes, bool]]:
    for piece in response:
        if piece:
            yield piece, True


def _handler_report(request: Any, commits: CommitWatch) -> HandlerReport:
    """What the view raised, if Django made the response from that, and whether the view's writes were committed."""
    return HandlerReport(getattr(request, _RAISED, None), commits.seen, _commits_what_returns())


def _commits_what_returns() -> bool:
    return any(one.get("ATOMIC_REQUESTS") for one in connections.settings.values())
