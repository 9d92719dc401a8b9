# Made from keyed_exchange_async.py by `make halves`: change that file, not this one.
"""
One keyed request, from who is calling to what its client gets: the same text behind every server and framework.

    enter     who is calling, and the whole body: nothing is claimed before both are known
    claim     under the key, or as a step of its plan: `push_exchange.py`, `pull_exchange.py`
    end       what the gate is told, and what the client gets: `handler_run.py`

A wire (`asgi.py`, `wsgi.py`, `django.py`) moves bytes and heads, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from onceward._core.errors import OncewardError
from onceward._core.reply import Reply
from onceward.gate import Gate
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.handler_run import HandlerRun
from onceward.http.server.request_admission import AdmittedRequest, IncomingRequest, RequestAdmission
from onceward.http.server.unknown_caller import scope_function_failed


class ServerConnection(Protocol):
    """What a server or a framework brings."""

    scope_label: str
    """How its scope function is called in the log."""

    def ask(self, scope_of: Callable[[IncomingRequest], Any], incoming: IncomingRequest) -> object:
        """Ask the scope function who is calling."""

    def take(self, admitted: AdmittedRequest, spool: BodyBuffer) -> None:
        """Take the whole body in: into the spool, and into the request's fingerprint."""


class KeyedExchange(HandlerRun):
    """A keyed request under a gate."""

    passes = False
    """Whether it is the application's: nobody is calling, and it wants such requests."""
    _gate: Gate | None = None
    _request = b""

    def __init__(self, reception: RequestAdmission[Gate], admitted: AdmittedRequest, wire: ServerConnection) -> None:
        self.admission, self.admitted, self.profile = reception, admitted, admitted.profile
        self.spool, self._wire = BodyBuffer(admitted.profile), wire

    def enter(self) -> Reply | None:
        """What its client gets at once; None: it `passes`, or may be claimed."""
        goes_on, scope_of = False, self.admission.scope_of
        try:
            caller = scope_of if isinstance(scope_of, str) else self._asked(scope_of)
            self._gate = self.admission.gate_for(caller, self.profile)
            if self._gate is None:
                self.passes = True
                return None
            self._wire.take(self.admitted, self.spool)
            body = self.admitted.fingerprint
            self._request = body.digest()
            goes_on = True
        except OncewardError as error:
            return self.admission.refused(self.admitted, error)
        finally:
            if not goes_on:
                self.spool.close()
        return None

    def _asked(self, scope_of: Callable[[IncomingRequest], Any]) -> object:
        """Who is calling, by the scope function. One that fails does not know."""
        try:
            return self._wire.ask(scope_of, self.admitted.incoming)
        except Exception as error:
            raise scope_function_failed(error, self._wire.scope_label) from error

    def close(self) -> None:
        """Let go of the body."""
        self.spool.close()

    def claim_arguments(self) -> tuple[Gate, dict[str, Any]]:
        """Where it is claimed, and as what: the same for a key and for a step of a plan."""
        if self._gate is None:
            raise RuntimeError("enter this exchange first")
        admitted = self.admitted
        return self._gate, {"request": self._request, "name": admitted.name, "probe": admitted.profile.probe}
