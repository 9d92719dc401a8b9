"""
The gate in front of Django's views, where sessions and users are known.

    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware",
                  "onceward.http.django.IdempotencyMiddleware"]
    ONCEWARD = {"GATE": "shop.gates.gate", "SCOPE": "shop.gates.scope_of", "PROFILE": "ietf"}

For plain and async views, under WSGI and ASGI. The view finds its operation in `request.operation`. `ASYNC_GATE` is
for async views; without it they are served through the blocking one, in a thread. Every field of a profile may be
said in capitals (`"REQUIRE_KEY": True`), or otherwise for single views:

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
from onceward.drive import Kept, to_the_end
from onceward.gate import AsyncGate, Gate
from onceward.http._django_async import Apart
from onceward.http._django_commits import Commits, look_at_all, watched
from onceward.http._django_messages import (
    SCOPE_NAMED,
    begin,
    incoming_of,
    let_go,
    operation_around,
    own,
    response_of,
    streamed,
    take,
)
from onceward.http.serving.attempt import Answered
from onceward.http.serving.changes import ProfileChanges
from onceward.http.serving.discovering import CHANGES, samples_of, warning
from onceward.http.serving.discovering import idempotent as idempotent
from onceward.http.serving.discovering import not_idempotent as not_idempotent
from onceward.http.serving.problems import WELL_KNOWN
from onceward.http.serving.profile import Profile, profile
from onceward.http.serving.pulled import Pulled, PulledExchange
from onceward.http.serving.pushed import PushedExchange
from onceward.http.serving.reception import Admitted, Incoming, Reception, log
from onceward.http.serving.spool import Spool

G = TypeVar("G", Gate, AsyncGate)

_RAISED = "_onceward_raised"


class IdempotencyMiddleware:
    """Keyed requests run once. Configured by `settings.ONCEWARD`; see above."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        said = dict(getattr(settings, "ONCEWARD", None) or {})
        gate, async_gate = _gate(said.pop("GATE", None)), _gate(said.pop("ASYNC_GATE", None))
        self._get_response: Any = get_response
        self._awaits = iscoroutinefunction(get_response)
        self._desk: _Desk[Any]
        if self._awaits:
            markcoroutinefunction(self)
        if self._awaits and async_gate is not None:
            self._desk = _Desk(_of_kind(async_gate, AsyncGate, "ASYNC_GATE"), said)
            self._serve: Any = self._serve_awaiting
            return
        self._desk = _Desk(_of_kind(gate, Gate, "GATE"), said)
        if self._awaits:
            self._get_response = async_to_sync(get_response)
            self._serve = self._serve_in_thread
        else:
            self._serve = self._serve_blocking

    def __call__(self, request: Any) -> Any:
        """Serve one request."""
        if self._awaits:
            return self._call_awaiting(request)
        found = self._desk.admit(request)
        if found is None:
            return self._get_response(request)
        return response_of(found) if isinstance(found, Reply) else self._serve(request, *found)

    async def _call_awaiting(self, request: Any) -> Any:
        found = self._desk.admit(request)
        if isinstance(found, Reply):
            return response_of(found)
        if found is not None:
            return await self._serve(request, *found)
        # Without an awaiting gate `get_response` is adapted, and is called in a thread.
        if iscoroutinefunction(self._get_response):
            return await self._get_response(request)
        return await sync_to_async(self._get_response, thread_sensitive=True)(request)

    def process_view(self, request: Any, view: Any, args: Any, kwargs: Any) -> None:
        """The view's thread, before the view: its connections tell what they commit."""
        if hasattr(request, "operation"):
            look_at_all()

    def process_exception(self, request: Any, exception: Exception) -> None:
        """What a view raised, before Django makes a response of it."""
        setattr(request, _RAISED, exception)

    # --- both colours ---

    def _serve_blocking(self, request: Any, reception: Reception[Gate], admitted: Admitted) -> Any:
        wire = _Wire(request, self._desk.now)
        exchange = wire.exchange = PulledExchange(reception, admitted, wire)
        reply = exchange.enter()
        if exchange.passes:
            return self._get_response(request)
        if reply is None:
            reply = exchange.hold()
        return wire.run(self._get_response) if reply is None else response_of(reply)

    async def _serve_in_thread(self, request: Any, reception: Reception[Gate], admitted: Admitted) -> Any:
        serve = sync_to_async(self._serve_blocking, thread_sensitive=True)
        # Django cancels a request whose client has left. What it began goes on all the same.
        kept = Kept()
        response = await to_the_end(serve(request, reception, admitted), kept)
        if (cancelled := kept.taken()) is not None:
            await sync_to_async(let_go, thread_sensitive=True)(response)
            raise cancelled
        return response

    async def _serve_awaiting(self, request: Any, reception: Reception[AsyncGate], admitted: Admitted) -> Any:
        wire = Apart(self._get_response, request, _answered, self._desk.now)
        exchange = wire.exchange = PushedExchange(reception, admitted, wire)
        reply = await exchange.enter()
        if exchange.passes:
            return await self._get_response(request)
        return await wire.serve() if reply is None else response_of(reply)


class _Desk(Generic[G]):
    """The settings, as receptions: one for the project, and one for each decorator."""

    def __init__(self, gate: G, said: dict[str, Any]) -> None:
        scope, well_known = said.pop("SCOPE", None), said.pop("WELL_KNOWN", WELL_KNOWN)
        routes, base = said.pop("ROUTES", ()), said.pop("PROFILE", "default")
        self._gate: G = gate
        self._scope = import_string(scope) if isinstance(scope, str) and _is_path(scope) else scope
        self._profile = profile(base, **{name.lower(): value for name, value in said.items()})
        self._well_known = well_known
        self._routes = list(routes)
        self._reception: Reception[G] = self._made(self._profile, self._routes)
        self._others: dict[int, tuple[ProfileChanges, Reception[G]]] = {}
        self._methods: dict[Any, frozenset[str]] = {}
        self.now = gate.environment.monotonic

    def _made(self, chosen: Profile, routes: Any = ()) -> Reception[G]:
        made: Reception[G] = Reception(
            self._gate, scope=self._scope, profile_=chosen, routes=routes, well_known=self._well_known, changes={}
        )
        return made

    def admit(self, request: Any) -> tuple[Reception[G], Admitted] | Reply | None:
        """What becomes of a request."""
        urlconf, reception = getattr(request, "urlconf", None), self._reception
        self._look(urlconf)
        methods = self._methods.get(urlconf) or self._methods_in(urlconf)
        if request.method.upper() not in methods and not request.path.startswith(self._well_known or "\0"):
            return None
        said = _said_by_view(request)
        if said == (None,):
            return None
        if said is not None:
            reception = self._for(said[0])
        admitted = reception.admit(incoming_of(request, reception.routes.single), operation_around(request))
        return (reception, admitted) if isinstance(admitted, Admitted) else admitted

    def _look(self, urlconf: Any) -> None:
        """Once: say which routes of the settings no URL of the project can match."""
        routes, self._routes = self._routes, []
        for route in routes:
            if not any(_resolves(sample, urlconf) for sample in samples_of(route.path)):
                log.warning(warning(route, None))

    def _methods_in(self, urlconf: Any) -> frozenset[str]:
        """Methods that may matter anywhere: those of the settings, and what decorators say."""
        found = self._methods[urlconf] = self._reception.routes.methods.union(
            *(
                map(str.upper, said[0].get("methods", ()))
                for said in _said_in(get_resolver(urlconf))
                if said[0] is not None
            )
        )
        return found

    def _for(self, changes: ProfileChanges) -> Reception[G]:
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


def _said_in(resolver: Any) -> Iterator[Any]:
    """What the decorators of a project's views have said."""
    for one in resolver.url_patterns:
        if hasattr(one, "url_patterns"):
            yield from _said_in(one)
        elif (said := getattr(one.callback, CHANGES, None)) is not None:
            yield said


def _said_by_view(request: Any) -> Any:
    """What the decorator of the view that will answer has said: None, or a tuple."""
    try:
        view = resolve(request.path_info, getattr(request, "urlconf", None)).func
    except Resolver404:
        return None
    return getattr(view, CHANGES, None)


def _gate(said: Any) -> Any:
    found = import_string(said) if isinstance(said, str) else said
    return found() if callable(found) else found


def _of_kind(found: Any, kind: type[G], name: str) -> G:
    if not isinstance(found, kind):
        raise ConfigurationError(
            f'settings.ONCEWARD["{name}"] names {kind.__name__} (or a function that makes one), for example '
            f'"shop.gates.gate", and is {type(found).__name__} here'
        )
    return found


def _is_path(scope: str) -> bool:
    """Whether a text names a function, such as "shop.gates.scope_of"; or is a scope, such as "live:shop"."""
    return "." in scope and ":" not in scope


# --- running a view under a blocking gate ---


class _Wire:
    """One request under a blocking gate."""

    scope_named = SCOPE_NAMED
    exchange: PulledExchange

    def __init__(self, request: Any, now: Callable[[], float]) -> None:
        self._request, self._now = request, now

    def ask(self, scope_of: Callable[[Incoming], Any], incoming: Incoming) -> object:
        """Call the scope function; it may be async."""
        found = scope_of(incoming)
        return async_to_sync(_awaited)(found) if isawaitable(found) else found

    def take(self, admitted: Admitted, spool: Spool) -> None:
        """Take the body in."""
        take(self._request, admitted, spool, self._now)

    def run(self, get_response: Callable[[Any], Any]) -> Any:
        """The response: whole, once it is stored; or a stream that is stored at its end."""
        request, exchange = self._request, self.exchange
        request.operation = exchange.operation
        try:
            with watched() as commits:
                response = get_response(request)
            begin(exchange.recording, response)
        except BaseException as error:
            exchange.close()
            return response_of(exchange.failed(error))
        if not response.streaming:
            exchange.close()
            exchange.recording.feed(response.content, more=False)
            instead = exchange.answered(_answered(request, commits))
            return own(response, exchange.own()) if instead is None else response_of(instead)

        def release() -> None:
            let_go(response)
            exchange.close()

        pulled = Pulled(exchange, _pieces(response), release, lambda: _answered(request, commits))
        if pulled.until_passing():
            return streamed(response, pulled, exchange.begin())
        return own(response, exchange.own()) if pulled.instead is None else response_of(pulled.instead)


async def _awaited(found: Awaitable[object]) -> object:
    return await found


def _pieces(response: Any) -> Iterator[tuple[bytes, bool]]:
    for piece in response:
        if piece:
            yield piece, True


def _answered(request: Any, commits: Commits) -> Answered:
    """What the view raised, if its answer may be made from that, and what is known of its commits."""
    return Answered(getattr(request, _RAISED, None), commits.seen, _commits_what_returns())


def _commits_what_returns() -> bool:
    return any(one.get("ATOMIC_REQUESTS") for one in connections.settings.values())
