# blocking half: exchange.py
"""
One keyed request, from who is calling to what its client gets: the same text behind every server and framework.

    enter     who is calling, and the whole body: nothing is claimed before both are known
    claim     under the key, or as a step of its plan
    end       what the gate is told, and what it says to that

What is decided on the way stands in `attempt.py`. A wire (`asgi.py`, `wsgi.py`, `django.py`) moves bytes and heads, and
decides nothing.

Who awaits gives its handler to the gate's `call`: a task can be cancelled, or closed, wherever it waits, and the gate
ends the claim in each of these cases. Who blocks holds the claim: a stream is pulled by its server long after the
handler has returned. So the last part has two shapes; what it decides has one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from onceward._core.colour import AWAITS
from onceward._core.errors import OncewardError
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.gate import AsyncGate
from onceward.gate.holding import Holding
from onceward.http.serving.attempt import ANSWERED, Answered, Attempt
from onceward.http.serving.reception import Admitted, Incoming, Reception
from onceward.http.serving.running import Unkept
from onceward.http.serving.scoping import unknown
from onceward.http.serving.spool import Spool
from onceward.http.serving.weight import off_the_loop


class AsyncWire(Protocol):
    """What a server or a framework brings."""

    scope_named: str
    """How its scope function is called in the log."""

    async def ask(self, scope_of: Callable[[Incoming], Any], incoming: Incoming) -> object:
        """Ask the scope function who is calling."""

    async def take(self, admitted: Admitted, spool: Spool) -> None:
        """Take the whole body in: into the spool, and into the request's fingerprint."""


class AsyncExchange(Attempt):
    """A keyed request under a gate."""

    def __init__(self, reception: Reception[AsyncGate], admitted: Admitted, wire: AsyncWire) -> None:
        super().__init__(reception, admitted)
        self.spool = Spool(admitted.profile)
        self.passes = False
        """Whether it is the application's: nobody is calling, and it wants such requests."""
        self._wire = wire
        self._gate: AsyncGate | None = None
        self._request = b""

    async def enter(self) -> Reply | None:
        """What its client gets at once; None: it `passes`, or may be claimed."""
        goes_on = False
        try:
            self._gate = self.reception.gate_for(await self._scope(), self.profile)
            if self._gate is None:
                self.passes = True
                return None
            await self._wire.take(self.admitted, self.spool)
            body = self.admitted.fingerprint
            self._request = await off_the_loop(body.digest, body.size) if AWAITS else body.digest()
            goes_on = True
        except OncewardError as error:
            return self.reception.refused(self.admitted, error)
        finally:
            if not goes_on:
                self.close()
        return None

    async def _scope(self) -> object:
        """Who is calling. A function that fails does not know."""
        scope_of: Any = self.reception.scope_of
        if isinstance(scope_of, str):
            return scope_of
        try:
            return await self._wire.ask(scope_of, self.admitted.incoming)
        except Exception as error:
            raise unknown(error, self._wire.scope_named) from error

    def close(self) -> None:
        """Let go of the body."""
        self.spool.close()

    def _entered(self) -> AsyncGate:
        if self._gate is None:
            raise RuntimeError("enter this exchange first")
        return self._gate

    if AWAITS:

        async def run(self, work: Callable[[Operation], Awaitable[Answered]]) -> Reply | None:
            """Let the wire run the handler; what its client gets in place of its answer, or None."""
            admitted, identity, gate = self.admitted, self.admitted.identity, self._entered()
            request, name, probe = self._request, admitted.name, admitted.profile.probe
            self._work = work
            try:
                if identity.plan is None:
                    outcome = await gate.call_on(
                        admitted.terms, identity.key, self._once, request=request, name=name, probe=probe
                    )
                else:
                    plan, options = gate.plan(identity.plan), admitted.options
                    outcome = await plan.call(
                        identity.key, self._once, request=request, name=name, probe=probe, marked=False, **options
                    )
            except BaseException as error:
                struck = error
            else:
                return self.given(outcome)
            return self.refused(struck)

        async def _once(self, operation: Operation) -> Reply | Unkept:
            """What the gate runs; more than once, where the route has a policy."""
            self.start(operation)
            try:
                how = self.how_answered(await self._work(operation))
            except GeneratorExit:
                raise  # Nobody waits for it any more, and nothing can be awaited: the gate leaves the key in doubt.
            except BaseException as error:
                how = self.how_failed(error)
            if isinstance(how, Raised):
                raise how.error
            value: Reply | Unkept = how.value
            return value

    else:

        def hold(self) -> Reply | None:
            """Claim it; what its client gets at once. None: run the handler, and tell how that ended."""
            admitted, identity, gate = self.admitted, self.admitted.identity, self._entered()
            claim = gate.hold if identity.plan is None else gate.plan(identity.plan).hold
            goes_on = False
            try:
                found = claim(
                    identity.key,
                    request=self._request,
                    name=admitted.name,
                    probe=admitted.profile.probe,
                    marked=False,
                    **admitted.options,
                )
                if isinstance(found, Outcome):
                    return self.given(found)
                self._holding: Holding = found
                self.start(found.operation)
                goes_on = True
            except OncewardError as error:
                return self.refused(error)
            finally:
                if not goes_on:
                    self.close()
            return None

        def answered(self, answered: Answered = ANSWERED) -> Reply | None:
            """The answer is complete: it is stored, and then it may be given."""
            return self._end(self.how_answered(answered))

        def failed(self, error: BaseException) -> Reply:
            """The handler raised: that is raised again, or this is answered."""
            instead = self._end(self.how_failed(error))
            if instead is None:
                raise error
            return instead

        def _end(self, how: Returned | Raised) -> Reply | None:
            try:
                outcome = self._holding.end(how)
            except BaseException as error:
                struck = error
            else:
                return self.given(outcome)
            return self.refused(struck)
