"""
`Retry`: one immutable policy, for any number of calls, threads and tasks.

    policy = Retry(attempts=3, elapsed=60, breaker=breaker("payments"), budget=Budget())

    policy.call(fetch, url)                      a call
    await policy.acall(fetch, url)
    @policy                                      a decorator, for `def` and `async def`
    policy.bind(key="charge:o-17").call(charge)  a keyed call: an unknown outcome may be tried again
    for attempt in policy.attempts():            a block
        with attempt: ...

Nothing of a call is kept in the policy: what two calls share is the budget and the breaker, which are meant to be.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from inspect import isawaitable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from onceward._core.attempts import Attempt, Judge, Retrying, RetryTerms
from onceward._core.backoff import BASE, CAP, Backoff, Jitter
from onceward._core.breaker import CircuitState, Refused
from onceward._core.classifier import DEFAULT
from onceward._core.errors import CircuitOpen, ConfigurationError
from onceward._core.flow import Answered, Ended, Raised
from onceward._core.judging.own import STOP_ATTRIBUTE
from onceward._core.keys import check_key
from onceward._core.recipes import Recipe, recipe
from onceward._core.stops import DeadLetters, Stop, StopReason
from onceward._core.terms import Seconds
from onceward.environment import REAL, Environment
from onceward.gate.declaring import name_of
from onceward.retry.breaker import Breaker
from onceward.retry.budget import Budget
from onceward.retry.choices import attempts_of, flag_of, seconds_of
from onceward.retry.frames import CURRENT, Frame
from onceward.retry.functions import Shape, check_function, key_of, no_stream, shape_of, warn
from onceward.retry.iterating import Attempts
from onceward.retry.performing import Work, given, within
from onceward.retry.switch import SWITCH

CLOSED = CircuitState.CLOSED

P = ParamSpec("P")
T = TypeVar("T")

ELAPSED = 60.0
"""Seconds in all: the upper end of what a live request can wait for."""

TIMEOUT = 30.0
"""Seconds per attempt, less if less is left."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Requests that may be repeated by nature (RFC 9110, 9.2.2)."""


class Nested(NamedTuple):
    """What `on_nested` is told: this policy did not retry, because a policy around it does."""

    name: str
    owner: str
    amplification: int
    """How many calls there could have been, had every layer retried for itself."""


class Retry:
    """
    Try again, if that is safe, worth it, and there is time.

    An outcome that nobody knows is tried again only if the call is keyed (`key`), can be looked up (`probe`) or is
    declared `safe`. The last error is raised unchanged, and `stop_of(error)` says why there was no further attempt.
    """

    __slots__ = (
        "_alerts",
        "_attempts",
        "_frozen",
        "_lock",
        "_now",
        "_recipe",
        "_terms",
        "backoff",
        "breaker",
        "budget",
        "classifier",
        "credential",
        "dead",
        "elapsed",
        "environment",
        "failed",
        "key",
        "name",
        "on_auth",
        "on_nested",
        "on_retry",
        "on_stop",
        "probe",
        "replayable",
        "safe",
        "timeout",
    )

    def __init__(
        self,
        attempts: int | None = None,
        *,
        max_retries: int | None = None,
        allow_many: bool = False,
        elapsed: Seconds = ELAPSED,
        timeout: Seconds = TIMEOUT,
        base: float = BASE,
        cap: float = CAP,
        jitter: Jitter = "full",
        jitter_reason: str = "",
        key: str | Callable[..., str] | None = None,
        safe: bool = False,
        probe: Callable[..., Any] | None = None,
        failed: Callable[[Any], bool] | None = None,
        classifier: Judge = DEFAULT,
        budget: Budget | None = None,
        breaker: Breaker | None = None,
        on_retry: Callable[[Retrying], Any] | None = None,
        on_stop: Callable[[Stop], Any] | None = None,
        on_auth: Callable[[Stop], Any] | None = None,
        on_nested: Callable[[Nested], Any] | None = None,
        dead: DeadLetters | None = None,
        name: str | None = None,
        environment: Environment = REAL,
    ) -> None:
        self._frozen = False
        if not isinstance(environment, Environment):
            raise ConfigurationError(f"environment is an Environment, not {type(environment).__name__}")
        self._attempts = attempts_of(attempts, max_retries, allow_many)
        self.elapsed = seconds_of(elapsed, "elapsed")
        self.timeout = seconds_of(timeout, "timeout")
        self.backoff = Backoff(base, cap, jitter, jitter_reason)
        self.key: str | None = None
        self._recipe: Recipe | None = None if key is None else recipe(key)
        self.safe, self.probe, self.failed = flag_of(safe, "safe"), probe, failed
        if isinstance(breaker, Breaker) and not breaker.enabled:
            breaker = None
        self.classifier, self.budget, self.breaker = classifier, budget, breaker
        self.on_retry, self.on_stop, self.on_auth, self.on_nested = on_retry, on_stop, on_auth, on_nested
        self.dead, self.name, self.environment = dead, name, environment
        self.replayable, self.credential = True, ""
        self._now = environment.monotonic
        self._alerts: set[str] = set()
        self._lock = threading.Lock()
        self._check()
        self._terms = RetryTerms(
            attempts=self._attempts,
            timeout=self.timeout,
            backoff=self.backoff,
            judge=classifier,
            has_budget=budget is not None,
            has_breaker=breaker is not None,
            has_probe=probe is not None,
            tells_retries=on_retry is not None,
            buries=dead is not None,
        )
        self._frozen = True

    def _check(self) -> None:
        for what in ("probe", "failed", "on_retry", "on_stop", "on_auth", "on_nested"):
            hook = getattr(self, what)
            if hook is not None and not callable(hook):
                raise ConfigurationError(f"{what} is a function, not {type(hook).__name__}")
        kinds = (("budget", self.budget, Budget), ("breaker", self.breaker, Breaker), ("name", self.name, str))
        for what, value, kind in kinds:
            if value is not None and not isinstance(value, kind):
                raise ConfigurationError(f"{what} is a {kind.__name__}, not {type(value).__name__}")
        if self.dead is not None and not callable(getattr(self.dead, "put", None)):
            raise ConfigurationError("dead needs a method put(stop, call)")
        if not callable(getattr(self.classifier, "judge", None)):
            raise ConfigurationError("classifier needs a method judge(problem, *, now=None) -> Verdict")

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_frozen", False):
            raise ConfigurationError("a policy does not change; make another, or bind() one call's own choices to it")
        object.__setattr__(self, name, value)

    def bind(
        self,
        *,
        key: str | None = None,
        safe: bool | None = None,
        method: str | None = None,
        replayable: bool = True,
        credential: str = "",
        failed: Callable[[Any], bool] | None = None,
        name: str | None = None,
        dead: DeadLetters | None = None,
    ) -> Retry:
        """
        This policy for one call: its key, or that it is safe; for clients also the HTTP method, whether the body can be
        sent again (`is_replayable(body)`), and which answers count as failures. `dead` puts its letters elsewhere.
        """
        bound = copy.copy(self)
        put = object.__setattr__
        if key is not None:
            put(bound, "key", check_key(key))
        if method is not None:
            put(bound, "safe", self.safe or method.upper() in SAFE_METHODS)
        if safe is not None:
            put(bound, "safe", flag_of(safe, "safe"))
        put(bound, "replayable", flag_of(replayable, "replayable"))
        if credential:
            put(bound, "credential", credential)
        if failed is not None:
            put(bound, "failed", failed)
        if name is not None:
            put(bound, "name", name)
        if dead is not None:
            put(bound, "dead", dead)
            put(bound, "_terms", self._terms._replace(buries=True))
        return bound

    @property
    def max_attempts(self) -> int:
        """How many attempts there are at most, the first included."""
        return self._attempts

    # --- calling ---

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn`, and again if need be. It may take `attempt` (an `Attempt`) or `timeout` (seconds)."""
        shape = shape_of(fn)
        if shape.stream:
            raise no_stream(fn)
        if shape.awaits:
            raise ConfigurationError(f"{name_of(fn)} is awaited: use `await policy.acall(...)`, or decorate it")
        return self._run(fn, shape, args, kwargs)  # type: ignore[no-any-return]

    async def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Same as `call`, but awaits, and holds every attempt to its timeout."""
        shape = shape_of(fn)
        if shape.stream:
            raise no_stream(fn)
        return await self._arun(fn, shape, args, kwargs)  # type: ignore[no-any-return]

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function, `def` or `async def`."""
        shape = check_function(fn)
        if self._recipe is not None:
            missing = [field for field in self._recipe.fields if shape.names and field not in _named(fn)]
            if missing:
                raise ConfigurationError(f"the key names {', '.join(missing)}, which {name_of(fn)} does not take")
        if shape.awaits:

            @wraps(fn)
            async def awaiting(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await self._arun(fn, shape, args, kwargs)

            return awaiting  # type: ignore[return-value]

        @wraps(fn)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            return self._run(fn, shape, args, kwargs)  # type: ignore[no-any-return]

        return blocking

    def attempts(self) -> Attempts:
        """
        The attempts of one call, as a loop; for `async for` as well. Every loop has its own, so a policy can be shared.

            for attempt in policy.attempts():
                with attempt:
                    fetch()
        """
        return Attempts(self)

    def _run(self, fn: Callable[..., Any], shape: Shape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = self._now()
        frame = Frame(began + self.elapsed, self._attempts, self.name or "")
        outer = CURRENT.get()
        if outer is not None:
            self._go_under(outer, frame, fn)
        key = self.key if self._recipe is None else self._key(fn, shape, args, kwargs)
        breaker, ticket = self.breaker, None
        if outer is not None and frame.limit <= began:
            work = Work(self, frame, began, fn, shape, args, kwargs, key, None)
            return self._value(work.refuse(StopReason.DEADLINE, None))
        if breaker is not None:
            circuit = breaker.circuit
            ticket = circuit.serial if circuit.state is CLOSED else breaker.first()
            if isinstance(ticket, Refused):
                work = Work(self, frame, began, fn, shape, args, kwargs, key, None)
                return self._value(work.refuse(StopReason.BREAKER, ticket.retry_after))
        token = CURRENT.set(frame)
        try:
            try:
                value = fn(*args, **(self._given(shape, kwargs, key, frame, began) if shape.wants else kwargs))
            except Exception as error:
                ended: Ended = Raised(error)
            except BaseException:
                if breaker is not None:
                    breaker.report(ticket, "ended")
                raise
            else:
                if self.failed is None or not self.is_problem(value):
                    if breaker is not None and (circuit.streak or breaker.counts_all or circuit.state is not CLOSED):
                        breaker.report(ticket, "succeeded")
                    if self.budget is not None:
                        self.budget.succeeded()
                    if self._alerts:
                        self._alerts.discard(self.credential)
                    return value
                ended = Answered(value)
            work = Work(self, frame, began, fn, shape, args, kwargs, key, ticket)
            try:
                return self._value(work.persist(ended))
            finally:
                del ended  # An error holds the frames that it passed; one that is held by them is freed late.
        finally:
            CURRENT.reset(token)
            frame.live = False

    async def _arun(self, fn: Callable[..., Any], shape: Shape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = self._now()
        frame = Frame(began + self.elapsed, self._attempts, self.name or "")
        outer = CURRENT.get()
        if outer is not None:
            self._go_under(outer, frame, fn)
        key = self.key if self._recipe is None else self._key(fn, shape, args, kwargs)
        breaker, ticket = self.breaker, None
        if outer is not None and frame.limit <= began:
            work = Work(self, frame, began, fn, shape, args, kwargs, key, None)
            return self._value(await work.arefuse(StopReason.DEADLINE, None))
        if breaker is not None:
            circuit = breaker.circuit
            ticket = circuit.serial if circuit.state is CLOSED else await breaker.afirst()
            if isinstance(ticket, Refused):
                work = Work(self, frame, began, fn, shape, args, kwargs, key, None)
                return await self._avalue(await work.arefuse(StopReason.BREAKER, ticket.retry_after))
        token = CURRENT.set(frame)
        try:
            try:
                given = self._given(shape, kwargs, key, frame, began) if shape.wants else kwargs
                left = frame.limit - began
                value = await within(self.timeout if self.timeout < left else left, fn(*args, **given))
            except Exception as error:
                ended: Ended = Raised(error)
            except BaseException:
                if breaker is not None:
                    breaker.report(ticket, "ended")
                raise
            else:
                if self.failed is None or not self.is_problem(value):
                    if breaker is not None and (circuit.streak or breaker.counts_all or circuit.state is not CLOSED):
                        await breaker.areport(ticket, "succeeded")
                    if self.budget is not None:
                        self.budget.succeeded()
                    if self._alerts:
                        self._alerts.discard(self.credential)
                    return value
                ended = Answered(value)
            work = Work(self, frame, began, fn, shape, args, kwargs, key, ticket)
            try:
                return await self._avalue(await work.apersist(ended))
            finally:
                del ended
        finally:
            CURRENT.reset(token)
            frame.live = False

    # --- what a call needs besides ---

    def terms(self) -> RetryTerms:
        """What the flow goes by, at this moment (a test may have turned the switch)."""
        return replace(self._terms, attempts=1) if SWITCH.retries_off else self._terms

    def is_problem(self, value: Any) -> bool:
        """Whether what an attempt returned counts as a failure. A predicate that itself fails says nothing."""
        if self.failed is None:
            return False
        try:
            return bool(self.failed(value))
        except Exception as error:
            warn("failed", error)
            return False

    def first_alert(self) -> bool:
        """Whether nobody has been told yet that this credential is refused. A success in between tells anew."""
        if self.on_auth is None:
            return False
        with self._lock:
            if self.credential in self._alerts:
                return False
            self._alerts.add(self.credential)
        return True

    def _go_under(self, outer: Frame, frame: Frame, fn: Callable[..., Any]) -> None:
        frame.under(outer)
        if frame.owner is not None and self.on_nested is not None:
            try:
                self.on_nested(Nested(self.name or name_of(fn), frame.owner.name, frame.owner.amplification))
            except Exception as error:
                warn("on_nested", error)

    def _key(self, fn: Callable[..., Any], shape: Shape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if self.key is not None or self._recipe is None:
            return self.key
        return key_of(self._recipe, fn, shape, args, kwargs)

    def _given(
        self, shape: Shape, kwargs: dict[str, Any], key: str | None, frame: Frame, began: float
    ) -> dict[str, Any]:
        timeout = min(self.timeout, frame.limit - began)
        return given(shape, kwargs, Attempt(1, key, timeout, frame.limit, self.name or ""))

    def _value(self, ended: Ended) -> Any:
        """What a call ended in, returned or raised; where the breaker stopped it, what its fallback says instead."""
        if not isinstance(ended, Raised):
            return ended.value
        error, fallback = ended.error, None if self.breaker is None else self.breaker.fallback
        try:
            if fallback is not None and isinstance(error, CircuitOpen) and stop_of(error) is not None:
                return fallback(error)
            raise error
        finally:
            del error, ended  # It holds this frame now.

    async def _avalue(self, ended: Ended) -> Any:
        """Same as `_value`; a fallback may be awaited."""
        fell_back = isinstance(ended, Raised)
        try:
            value = self._value(ended)
        finally:
            del ended
        return await value if fell_back and isawaitable(value) else value

    def __copy__(self) -> Retry:
        other = object.__new__(type(self))
        put = object.__setattr__
        for name in self.__slots__:
            put(other, name, getattr(self, name))
        return other

    def __repr__(self) -> str:
        return f"<Retry {self._attempts} attempts, {self.elapsed:g} s in all, {self.timeout:g} s each>"


def stop_of(error: Any) -> Stop | None:
    """Why a policy made no further attempt: the `Stop` on an error that it raised, or on an answer; None if none."""
    found = getattr(error, STOP_ATTRIBUTE, None)
    return found if isinstance(found, Stop) else None


def _named(fn: Callable[..., Any]) -> frozenset[str]:
    from inspect import signature

    return frozenset(signature(fn).parameters)
