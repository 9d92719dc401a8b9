# Made from keyed_exchange_async.py by `make halves`: change that file, not this one.
"""
One keyed request, from its caller to its response: the same code behind every server and framework.

    prepare   find out who is calling, and read the whole body: nothing is claimed before both are known
    claim     under the key, or as a step of its plan: `push_exchange.py`, `pull_exchange.py`
    end       the result for the gate, and the response for the client: `handler_run.py`

A connection (in `asgi.py`, `wsgi.py`, `django.py`) moves headers and bytes, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from onceward._core.errors import OncewardError
from onceward._core.operation import Outcome
from onceward._core.reply import Reply
from onceward.gate import Gate
from onceward.gate.call_factory import PreparedCall, unreachable
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.handler_run import HandlerRun
from onceward.http.server.request_admission import AdmittedRequest, IncomingRequest, RequestAdmission
from onceward.http.server.unknown_caller import scope_function_failed


class ServerConnection(Protocol):
    """What a middleware adds for its server or framework."""

    scope_label: str
    """What log lines call its scope function."""

    def call_scope(self, scope_of: Callable[[IncomingRequest], Any], incoming: IncomingRequest) -> object:
        """Call the scope function, which says who is calling. If that has to be awaited, this is its awaitable."""

    def load_body(self, admitted: AdmittedRequest, body: BodyBuffer) -> Any:
        """
        Read the whole body into the buffer and into the request's fingerprint. If that has to be awaited, this is its
        awaitable; if the body was there in one short piece, this is the body, and nothing else was done with it.
        """


class KeyedExchange(HandlerRun):
    """One keyed request, up to its claim."""

    passes = False
    """Whether to pass it to the application: its caller is unknown, and unscoped="pass"."""
    gate: Gate
    """The caller's, once `prepare` has found it."""
    _request = b""
    _ready: PreparedCall
    """A request with a key, ready for its claim."""

    def __init__(self, admission: RequestAdmission[Gate], admitted: AdmittedRequest) -> None:
        self.admission, self.admitted, self.profile = admission, admitted, admitted.profile
        self.body = BodyBuffer(admitted.profile)

    def prepare(self, connection: ServerConnection) -> Reply | None:
        """
        Find the caller and read the body, then take a quick look for a stored response. The reply to send at once;
        None: it `passes`, or `_ready` is what to claim, and the body is in its buffer.

        The connection knows its exchange and is not known to it: so both are gone with the request, and no garbage
        collector has to look for them.
        """
        admission, admitted = self.admission, self.admitted
        caller: Any = admission.scope_of
        try:
            if callable(caller):
                try:
                    caller = connection.call_scope(caller, admitted.incoming)
                except Exception as error:
                    raise scope_function_failed(error, connection.scope_label) from error
            gate = admission.gates.get(caller) if type(caller) is str else None
            if gate is None:
                gate = admission.gate_for(caller, self.profile)
                if gate is None:
                    self.passes = True
                    return None
            self.gate = gate
            read = admitted.fingerprint
            connection.load_body(admitted, self.body)
            request = read.digest()
            self._request = request
            key, plan = admitted.identity
            if plan is None:
                probe = self.profile.probe
                found: Any = gate.prepare_on(
                    admitted.terms, key, unreachable, request=request, name=admitted.name, probe=probe
                )
                if isinstance(found, Outcome):
                    if self.body.on_disk:
                        self.body.close()
                    return admission.response_for_outcome(admitted, found)
                self._ready = found
            return None
        except OncewardError as error:
            self.body.close()
            return admission.response_for_error(admitted, error)
        except BaseException:
            self.body.close()
            raise

    def close(self) -> None:
        """Close the body's temporary file."""
        self.body.close()

    def step_arguments(self) -> dict[str, Any]:
        """A step of a plan: the arguments of its call."""
        admitted = self.admitted
        probe = admitted.profile.probe
        return {"request": self._request, "name": admitted.name, "probe": probe, "marked": False, **admitted.options}
