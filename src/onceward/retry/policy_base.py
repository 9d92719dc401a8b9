"""
The part of a policy that has no colour: its options, and what a call needs to know of them.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from onceward._core.backoff import BASE, CAP, Backoff, Jitter
from onceward._core.classifier import DEFAULT
from onceward._core.errors import ConfigurationError
from onceward._core.key_recipes import Recipe, recipe
from onceward._core.keys import check_key
from onceward._core.retry_flow import Attempt, RetryEvent, RetryTerms, SupportsJudge
from onceward._core.sent_request import SentRequest
from onceward._core.stops import DeadLetters, Stop
from onceward._core.terms import Seconds
from onceward._core.verdict_tables.onceward_errors import STOP_ATTRIBUTE
from onceward.gate.function_inspection import function_name
from onceward.retry.breaker import Breaker
from onceward.retry.budget import Budget
from onceward.retry.call_context import CallContext
from onceward.retry.function_shape import FunctionShape, key_of, warn_hook_failed
from onceward.retry.option_checks import checked_attempts, checked_flag, checked_seconds
from onceward.retry.resilience import OperationResilience
from onceward.retry.resilience_base import check_only_one
from onceward.retry.retry_runner_base import arguments_for
from onceward.retry.retry_switch import SWITCH
from onceward.runtime.environment import REAL, Environment

if TYPE_CHECKING:
    from onceward.retry.policy import Retry

ELAPSED = 60.0
"""Seconds in all: the upper end of what a live request can wait for."""

TIMEOUT = 30.0
"""Seconds per attempt, less if less is left."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Requests that may be repeated by nature (RFC 9110, 9.2.2)."""


class NestedRetryEvent(NamedTuple):
    """What `on_nested` is told: this policy did not retry, because a policy around it does."""

    name: str
    owner: str
    amplification: int
    """How many calls there could have been, had every layer retried for itself."""


class RetryBase:
    """The options of a policy. `Retry` adds the ways to call through it."""

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
        "request",
        "safe",
        "timeout",
        "under_gate",
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
        classifier: SupportsJudge = DEFAULT,
        budget: Budget | None = None,
        breaker: Breaker | None = None,
        on_retry: Callable[[RetryEvent], Any] | None = None,
        on_stop: Callable[[Stop], Any] | None = None,
        on_auth: Callable[[Stop], Any] | None = None,
        on_nested: Callable[[NestedRetryEvent], Any] | None = None,
        dead: DeadLetters | None = None,
        name: str | None = None,
        environment: Environment = REAL,
    ) -> None:
        self._frozen = False
        if not isinstance(environment, Environment):
            raise ConfigurationError(f"environment is an Environment, not {type(environment).__name__}")
        self._attempts = checked_attempts(attempts, max_retries, allow_many)
        self.elapsed = checked_seconds(elapsed, "elapsed")
        self.timeout = checked_seconds(timeout, "timeout")
        self.backoff = Backoff(base, cap, jitter, jitter_reason)
        self.key: str | None = None
        self._recipe: Recipe | None = None if key is None else recipe(key)
        self.safe, self.probe, self.failed = checked_flag(safe, "safe"), probe, failed
        if isinstance(breaker, Breaker) and not breaker.enabled:
            breaker = None
        self.classifier, self.budget, self.breaker = classifier, budget, breaker
        self.on_retry, self.on_stop, self.on_auth, self.on_nested = on_retry, on_stop, on_auth, on_nested
        self.dead, self.name, self.environment = dead, name, environment
        self.replayable, self.credential, self.under_gate = True, "", False
        self.request: Callable[[], SentRequest] | None = None
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
            has_retry_hook=on_retry is not None,
            has_dead_letters=dead is not None,
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
            raise ConfigurationError(
                "a policy cannot be changed. Make another one, or use bind() for the options of one call"
            )
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
        request: Callable[[], SentRequest] | None = None,
    ) -> Self:
        """
        This policy for one call: its key, or that it is safe. HTTP clients also give the method, whether the body can
        be sent again (`is_replayable(body)`), and which responses count as failures. `dead` puts dead letters
        elsewhere. `request` returns what a dead letter stores of an HTTP request; it is called only if there is one.
        """
        bound = copy.copy(self)
        put = object.__setattr__
        if key is not None:
            put(bound, "key", check_key(key))
        if method is not None:
            put(bound, "safe", self.safe or method.upper() in SAFE_METHODS)
        if safe is not None:
            put(bound, "safe", checked_flag(safe, "safe"))
        put(bound, "replayable", checked_flag(replayable, "replayable"))
        if credential:
            put(bound, "credential", credential)
        if failed is not None:
            put(bound, "failed", failed)
        if name is not None:
            put(bound, "name", name)
        if request is not None:
            put(bound, "request", request)
        if dead is not None:
            put(bound, "dead", dead)
            put(bound, "_terms", replace(self._terms, has_dead_letters=True))
        return bound

    def resilience(self, retry: Retry | None, breaker: Breaker | None, budget: Budget | None) -> OperationResilience:
        """This policy with a breaker and a budget, around an operation. For gates: `once(retry=policy, ...)`."""
        return OperationResilience(retry, breaker, budget)

    def joined_with(self, breaker: Breaker | None, budget: Budget | None) -> Self:
        """This policy with a breaker and a budget that it does not have yet; another one of either is refused."""
        check_only_one("breaker", self.breaker, breaker)
        check_only_one("budget", self.budget, budget)
        bound, put = copy.copy(self), object.__setattr__
        if breaker is not None and breaker.enabled:
            put(bound, "breaker", breaker)
        if budget is not None:
            put(bound, "budget", budget)
        with_breaker, with_budget = bound.breaker is not None, bound.budget is not None
        put(bound, "_terms", replace(self._terms, has_breaker=with_breaker, has_budget=with_budget))
        return bound

    def gated(
        self, *, judge: SupportsJudge, key: str | None, safe: bool, probe: Callable[..., Any] | None, name: str | None
    ) -> Self:
        """This policy for one operation of a gate, which knows what is certain and what may be repeated."""
        bound, put = copy.copy(self), object.__setattr__
        for field, value in (("key", key), ("safe", safe), ("probe", probe), ("name", name), ("under_gate", True)):
            put(bound, field, value)
        put(bound, "_recipe", None)
        put(bound, "_terms", replace(self._terms, judge=judge, has_probe=probe is not None))
        return bound

    @property
    def max_attempts(self) -> int:
        """How many attempts there are at most, the first included."""
        return self._attempts

    # --- what a call needs besides ---

    def terms(self) -> RetryTerms:
        """The options for the retry flow, at this moment (a test may have turned the switch)."""
        return replace(self._terms, attempts=1) if SWITCH.retries_off else self._terms

    def is_problem(self, value: Any) -> bool:
        """Whether what an attempt returned counts as a failure. A predicate that itself fails says nothing."""
        if self.failed is None:
            return False
        try:
            return bool(self.failed(value))
        except Exception as error:
            warn_hook_failed("failed", error)
            return False

    def first_alert(self) -> bool:
        """Whether this is the first refusal of this credential, or the first since a call succeeded."""
        if self.on_auth is None:
            return False
        with self._lock:
            if self.credential in self._alerts:
                return False
            self._alerts.add(self.credential)
        return True

    def _go_under(self, outer: CallContext, frame: CallContext, fn: Callable[..., Any]) -> None:
        frame.under(outer)
        if frame.owner is not None and self.on_nested is not None:
            try:
                self.on_nested(
                    NestedRetryEvent(self.name or function_name(fn), frame.owner.name, frame.owner.amplification)
                )
            except Exception as error:
                warn_hook_failed("on_nested", error)

    def _key(
        self, fn: Callable[..., Any], shape: FunctionShape, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        if self.key is not None or self._recipe is None:
            return self.key
        return key_of(self._recipe, fn, shape, args, kwargs)

    def _given(
        self, shape: FunctionShape, kwargs: dict[str, Any], key: str | None, frame: CallContext, began: float
    ) -> dict[str, Any]:
        timeout = min(self.timeout, frame.limit - began)
        return arguments_for(shape, kwargs, Attempt(1, key, timeout, frame.limit, self.name or ""))

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        put = object.__setattr__
        for name in RetryBase.__slots__:
            put(other, name, getattr(self, name))
        return other

    def __repr__(self) -> str:
        return f"<Retry {self._attempts} attempts, {self.elapsed:g} s in all, {self.timeout:g} s each>"


def stop_of(error: Any) -> Stop | None:
    """Why a policy made no further attempt: the `Stop` on an error or a response that came from it; else None."""
    found = getattr(error, STOP_ATTRIBUTE, None)
    return found if isinstance(found, Stop) else None
