"""
Decides what to do with a request: pass it through, reply at once, or run it under its key.

    admit ----> None: pass it through, untouched
          ----> Reply: send this (a refusal, or the published contract)
          ----> AdmittedRequest: a keyed request; read its body into `fingerprint`, then run it under the gate

Nothing here does I/O, and nothing knows ASGI or WSGI.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from onceward._core.errors import ConfigurationError, InDoubt, OncewardError, OwnershipLost, ScopeMissing
from onceward._core.operation import Operation, Outcome
from onceward._core.record_types import new_tuple
from onceward._core.reply import Headers, Reply
from onceward._core.terms import Terms
from onceward.gate import AsyncGate, Gate
from onceward.http.server.app_routes import AppRoute, decorated_routes, unmatched_routes, unmatched_warning
from onceward.http.server.problems import WELL_KNOWN, pending_response, refusal_response
from onceward.http.server.profile import Profile, profile
from onceward.http.server.profile_overrides import ProfileOverrides
from onceward.http.server.published_contract import contract_response, error_page
from onceward.http.server.request_fingerprint import (
    RequestFingerprint,
    beginning_of,
    compared_headers,
    comparison_of,
)
from onceward.http.server.request_identity import RequestIdentity, identity_of
from onceward.http.server.responses import as_reply, marked_replay
from onceward.http.server.routes import RequestTarget, Route, Routes, TargetKey, Treatment
from onceward.http.server.unknown_caller import RateLimitedLog, caller_missing

SCOPES_REMEMBERED = 1_024
"""How many scopes' gates are kept; the oldest is dropped first."""

TARGETS_REMEMBERED = 256
TARGET_BYTES_REMEMBERED = 512
"""Most requests go to a few targets, with a few Content-Types. Long ones are not worth the memory."""

_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_UNSEEN = re.compile(rb"[^!-~]")

log = logging.getLogger("onceward.http")
REFUSAL_LINE = "onceward: a keyed request was refused with %d %s: %s"


def _shown(path: bytes) -> str:
    """A path for records and logs: what cannot be seen is a question mark."""
    text = path.decode("latin-1")
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    return _UNSEEN.sub(b"?", path).decode("ascii")


class IncomingRequest(NamedTuple):
    """A request, as a `scope` function sees it."""

    method: str
    path: str
    """Decoded, as routes match it."""
    raw_path: bytes
    """As it was sent."""
    query: bytes
    headers: list[tuple[bytes, bytes]]
    """Names in lower case."""
    raw: Any
    """What the server or framework handed over: the ASGI scope, the WSGI environ, or Django's request."""

    def header(self, name: str) -> str | None:
        """The first value of a header, in any case."""
        wanted = name.lower().encode("latin-1")
        for found, value in self.headers:
            if found == wanted:
                return value.decode("latin-1")
        return None

    @property
    def content_length(self) -> int | None:
        """The Content-Length header as a number; None if it is missing or not a number."""
        return _as_length(next((value for name, value in self.headers if name == b"content-length"), None))


def _as_length(declared: bytes | None) -> int | None:
    """A Content-Length as a number; None if it is none. Thirty digits are more than any limit: the rest is cut off."""
    return int(declared[:30]) if declared is not None and declared.isdigit() else None


ScopeOrFunction = str | Callable[[IncomingRequest], str | None] | Callable[[IncomingRequest], Awaitable[str | None]]


G = TypeVar("G", Gate, AsyncGate)


class AdmittedRequest(NamedTuple):
    """A request with a key, and how it is to be run."""

    incoming: IncomingRequest
    identity: RequestIdentity
    profile: Profile
    name: str
    """What records and logs call this operation: method and route."""
    options: dict[str, Any]
    """For the gate's `call`; `terms` is the same, checked."""
    terms: Terms
    fingerprint: RequestFingerprint
    content_length: int | None
    """What Content-Length says, if it is a number that may be more than is allowed."""
    mark: Headers
    """The headers that its replay is marked with."""


def _learn_target(routes: Routes, by: Treatment, incoming: IncomingRequest, known: TargetKey | None) -> RequestTarget:
    """What the target of a keyed request says; it is remembered by `known`, unless that is long."""
    method, _, sent, query, headers, _ = incoming
    chosen, route, options, terms, names, marks = by
    name = f"{method} {route or _shown(sent)}"[:200]
    beginning, way = beginning_of(method, sent, query), comparison_of(headers, chosen)
    digits = len(str(chosen.body_bytes_max))
    target = RequestTarget(chosen, names, options, terms, marks, name, beginning, way, digits)
    if known is not None and sum([len(part or b"") for part in known]) <= TARGET_BYTES_REMEMBERED:
        if len(routes.targets) >= TARGETS_REMEMBERED:
            routes.targets.clear()
        routes.targets[known] = target
    return target


class RequestAdmission(Generic[G]):
    """A gate, a profile and its routes, in front of an application."""

    def __init__(
        self,
        gate: G,
        *,
        scope: ScopeOrFunction | None,
        profile_: str | Profile,
        routes: Iterable[Route],
        well_known: str | None = WELL_KNOWN,
        changes: ProfileOverrides,
        repeats: bool = False,
    ) -> None:
        if scope is None:
            raise ScopeMissing(
                "the middleware needs scope=. Give it a function from the request to the authenticated caller (for "
                'example lambda request: "live:" + request.raw["state"]["tenant"]), or one text if there is one caller'
            )
        self._gate: G = gate
        self.scope_of = scope
        self._base = profile(profile_, **changes)
        self._given = list(routes)
        self.routes = Routes(self._base, self._given, gate.agreed)
        if not repeats and any(one.terms.retry is not None for one in self.routes.treatments()):
            raise ConfigurationError(
                "retry= works with the ASGI middleware only. Here give breaker= and budget=, and put the retry around "
                "what the handler calls"
            )
        if well_known is not None and not _PATH.fullmatch(well_known):
            raise ConfigurationError("well_known must be a path, such as /.well-known/idempotency, or None")
        self.well_known = well_known
        self._publish()
        self.gates: OrderedDict[str, G] = OrderedDict()
        """Gates of callers that `gate_for` was asked for."""
        self._rate_limited_log = RateLimitedLog(log, gate.environment.monotonic)

    def _publish(self) -> None:
        self._contract = contract_response(self.routes.default.profile, self.routes.default.terms, self.routes.others())

    def learn(self, known: list[AppRoute] | None) -> None:
        """
        Take in the application's own routes, if they are known: the overrides of decorated handlers apply from now on,
        and a `Route` that matches nothing is logged.
        """
        if known is None:
            return
        decorated: list[Route] = decorated_routes(known, frozenset(self._base.methods))
        if decorated:
            self.routes = Routes(self._base, [*decorated, *self._given], self._gate.agreed)
            self._publish()
        for route, meant in unmatched_routes(self._given, known):
            log.warning(unmatched_warning(route, meant))

    def admit(
        self, incoming: IncomingRequest, inside: object = None, single: dict[bytes, bytes] | None = None
    ) -> AdmittedRequest | Reply | None:
        """
        Decide what to do with a request. `inside` is the operation that an outer middleware of ours already runs for
        it, if any: then it passes through, so that it is one operation and not two. `single` is the headers as a
        dictionary, if that is at hand and none of them is repeated.
        """
        method, path, sent, query, headers, _ = incoming
        if method == "GET" and self.well_known is not None and path.startswith(self.well_known):
            return self._published(path.removeprefix(self.well_known), self.well_known)
        if single is None:
            by_name = dict(headers)
            single = by_name if len(by_name) == len(headers) else None  # Looked through once, unless one is repeated.
        routes, known = self.routes, None
        treatment: Treatment | RequestTarget | None = None
        if single is not None and b"content-encoding" not in single:
            known = (method, path, sent, query, single.get(b"content-type"))
            treatment = routes.targets.get(known)
        if treatment is None:
            treatment = routes.find(method, path)
            if treatment is None:
                return None
        chosen = treatment.profile
        try:
            identity = identity_of(headers, chosen, single, treatment.names)
        except OncewardError as error:
            return self.refuse(error, chosen)
        if identity is None or (inside is not None and isinstance(inside, Operation)):
            return None
        if not isinstance(treatment, RequestTarget):
            treatment = _learn_target(routes, treatment, incoming, known)
        _, _, options, terms, marks, name, beginning, way, digits = treatment
        if chosen.fingerprint_headers:
            beginning += compared_headers(headers, chosen)
        if single is None:
            length = incoming.content_length
        else:
            declared = single.get(b"content-length")
            length = None if declared is None or len(declared) < digits else _as_length(declared)
        fingerprint, mark = RequestFingerprint(beginning, way), marks[identity[1] is not None]
        admitted = (incoming, identity, chosen, name, options, terms, fingerprint, length, mark)
        return new_tuple(AdmittedRequest, admitted)  # type: ignore[no-any-return]

    def _published(self, rest: str, well_known: str) -> Reply | None:
        if rest == "":
            return self._contract
        if not rest.startswith("/"):
            return None
        return error_page(rest.removeprefix("/"), self.routes.default.profile, contract=well_known)

    def gate_for(self, scope: object, chosen: Profile) -> G | None:
        """The caller's gate. If the caller is unknown: `ScopeMissing`, or None with unscoped="pass"."""
        if not isinstance(scope, str) or not scope:
            if chosen.unscoped == "pass":
                return None
            raise caller_missing()
        found = self.gates.get(scope)
        if found is None:
            found = self.gates[scope] = self._gate.scoped(scope)
            if len(self.gates) > SCOPES_REMEMBERED:
                self.gates.popitem(last=False)
        return found

    # --- responses ---

    def response_for_outcome(self, admitted: AdmittedRequest, outcome: Outcome[Any]) -> Reply:
        """The response for a stored or pending outcome. A fresh run sends the handler's own response."""
        if outcome.pending:
            return pending_response(admitted.profile, outcome.retry_after_seconds, pages=self.well_known)
        value = outcome.value
        stored = value if type(value) is Reply else as_reply(value)
        return marked_replay(stored, admitted.profile, admitted.mark, outcome)

    def refuse(self, error: OncewardError, chosen: Profile | None = None) -> Reply:
        """The response for a refusal; if the cause is on the server's side, it is logged, too."""
        reply = refusal_response(error, chosen or self.routes.default.profile, pages=self.well_known)
        if isinstance(error, ScopeMissing):
            level = logging.ERROR if reply.status >= 500 else logging.WARNING
            self._rate_limited_log.log(level, REFUSAL_LINE, reply.status, error.code, error)
        elif reply.status >= 500 or isinstance(error, InDoubt):
            log.error(REFUSAL_LINE, reply.status, error.code, error)
        return reply

    def response_for_error(self, admitted: AdmittedRequest, error: OncewardError) -> Reply:
        """The response for what the gate raised."""
        if isinstance(error, OwnershipLost) and error.outcome is not None:
            return self.response_for_outcome(admitted, error.outcome)
        return self.refuse(error, admitted.profile)
