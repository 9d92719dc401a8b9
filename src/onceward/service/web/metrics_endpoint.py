"""
`/metrics` for Prometheus, and the observer that counts the service's calls for it.

It is about the whole service and so for no tenant: whoever asks from one of the networks of the setting `metrics` is
answered, everybody else is told that there is no such page. No tenant, token, database or key is in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from onceward._core.errors import OncewardError
from onceward.observe import Metrics
from onceward.observe.metrics_apps import answer
from onceward.protocol.errors import ResourceNotFound
from onceward.runtime.environment import REAL, Environment
from onceward.service.access import Caller
from onceward.service.access.addresses import Network, is_within
from onceward.service.journal.journal_observer import call_outcome
from onceward.service.web.calls import CallObserver, OnCallEnded
from onceward.service.web.problems import error_response


class MetricsEndpoint:
    """The endpoint. It asks the store in a thread, every 15 seconds at most, however many ask here."""

    def __init__(self, metrics: Metrics, networks: Sequence[Network], address: Callable[[Request], str]) -> None:
        self._metrics = metrics
        self._networks = networks
        self._address = address

    async def serve(self, request: Request) -> Response:
        """One call."""
        try:
            if not is_within(self._address(request), self._networks):
                raise ResourceNotFound
        except OncewardError as error:
            return error_response(error)
        status, headers, body = await asyncio.to_thread(answer, self._metrics, request.method)
        return Response(body, status, dict(headers))


class MetricsObserver:
    """A `CallObserver` that counts calls by method and outcome, and hands on to the next one."""

    def __init__(self, metrics: Metrics, then: CallObserver | None, environment: Environment = REAL) -> None:
        self._metrics = metrics
        self._then = then
        self._environment = environment

    def begun(self, caller: Caller, request: Request) -> OnCallEnded:
        """A call begins."""
        began = self._environment.monotonic()
        on_ended = None if self._then is None else self._then.begun(caller, request)

        def ended(response: Response | None, refused: OncewardError | None) -> None:
            took = self._environment.monotonic() - began
            self._metrics.count_call(request.method, call_outcome(response, refused).value, took)
            if on_ended is not None:
                on_ended(response, refused)

        return ended
