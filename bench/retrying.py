"""The process of one adapter of the retry group: what a policy or a breaker adds to a call that does nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.worker import Broken

BURST = 50
"""Calls between two looks at the clock."""

SYNC, ASYNC, FAILURE, BREAKER, ABREAKER = "sync", "async", "failure", "breaker", "abreaker"


class Flaky:
    """Fails, succeeds, fails, succeeds: every call of a policy is one failure and one success."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls % 2:
            raise ConnectionRefusedError
        return 1


def plain() -> int:
    """The least that can be called."""
    return 1


async def aplain() -> int:
    """Same, awaited."""
    return 1


def wrapped(name: str, case: str) -> Callable[[], Any]:
    """The adapter's own form of the case: something to call or to await."""
    flaky = Flaky()
    works: dict[str, Callable[[], Any]] = {FAILURE: flaky, ASYNC: aplain, ABREAKER: aplain}
    made: Callable[[], Any] = _adapter(name)(case, works.get(case, plain))
    return made


def _plain(case: str, work: Any) -> Any:
    if case != FAILURE:
        return work

    def by_hand() -> Any:
        for _ in range(2):
            try:
                return work()
            except ConnectionRefusedError:
                continue
        raise ConnectionRefusedError

    return by_hand


def _ours(case: str, work: Any) -> Any:
    from onceward.retry import Breaker, Retry
    from onceward.retry.retry_switch import SWITCH

    SWITCH.no_sleeping += 1
    if case in (BREAKER, ABREAKER):
        return Breaker("bench")(work)
    policy = Retry()
    return policy(work) if case != FAILURE else lambda: policy.call(work)


def _ours_full(case: str, work: Any) -> Any:
    from onceward.retry import Breaker, Budget, Retry
    from onceward.retry.retry_switch import SWITCH

    SWITCH.no_sleeping += 1
    policy = Retry(budget=Budget(ratio=1), breaker=Breaker("bench")).bind(key="bench:1")
    return policy(work) if case != FAILURE else lambda: policy.call(work)


def _adapter(name: str) -> Callable[[str, Any], Any]:
    return _ADAPTERS.get(name, _unknown)


def _unknown(case: str, work: Any) -> Any:
    raise Broken(f"no such adapter has {case}")


def _tenacity(case: str, work: Any) -> Any:
    import tenacity

    return tenacity.retry(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none())(work)


def _stamina(case: str, work: Any) -> Any:
    import stamina

    return stamina.retry(on=ConnectionRefusedError, attempts=3, wait_initial=0, wait_max=0, wait_jitter=0)(work)


def _backoff(case: str, work: Any) -> Any:
    import logging

    import backoff

    logging.getLogger("backoff").disabled = True
    if case == FAILURE:
        inner = work

        def work() -> Any:  # It names what it retries, and an object has no name.
            return inner()

    return backoff.on_exception(backoff.constant, ConnectionRefusedError, max_tries=3, interval=0, jitter=None)(work)


def _redress(case: str, work: Any) -> Any:
    import redress

    retry: Any = redress.AsyncRetry if case == ASYNC else redress.Retry
    policy: Any = redress.AsyncPolicy if case == ASYNC else redress.Policy
    made = policy(retry=retry(classifier=redress.default_classifier, strategy=lambda context: 0.0, max_attempts=3))
    return lambda: made.call(work)


def _pybreaker(case: str, work: Any) -> Any:
    import pybreaker

    return pybreaker.CircuitBreaker()(work)


def _circuitbreaker(case: str, work: Any) -> Any:
    import circuitbreaker

    return circuitbreaker.circuit(work)


def _interlock(case: str, work: Any) -> Any:
    import interlock

    return interlock.CircuitBreaker(name="bench")(work)


_ADAPTERS: dict[str, Callable[[str, Any], Any]] = {
    "plain": _plain,
    "ours": _ours,
    "ours-full": _ours_full,
    "tenacity": _tenacity,
    "stamina": _stamina,
    "backoff": _backoff,
    "redress": _redress,
    "pybreaker": _pybreaker,
    "circuitbreaker": _circuitbreaker,
    "interlock-cb": _interlock,
}

CASES = {
    "plain": (SYNC, ASYNC, FAILURE, BREAKER, ABREAKER),
    "ours": (SYNC, ASYNC, FAILURE, BREAKER, ABREAKER),
    "ours-full": (SYNC, ASYNC, FAILURE),
    "tenacity": (SYNC, ASYNC, FAILURE),
    "stamina": (SYNC, ASYNC, FAILURE),
    "backoff": (SYNC, ASYNC, FAILURE),
    "redress": (SYNC, ASYNC, FAILURE),
    "pybreaker": (BREAKER,),
    "circuitbreaker": (BREAKER, ABREAKER),
    "interlock-cb": (BREAKER, ABREAKER),
}
"""What each has. pybreaker has no asyncio form."""


class Retrying:
    """One adapter, all its cases."""

    def __init__(self, _folder: Path, name: str) -> None:
        self._calls = {case: wrapped(name, case) for case in CASES[name]}

    def check(self) -> None:
        """Every case gives what the bare function gives."""
        for case, call in self._calls.items():
            made = call()
            value = asyncio.run(_awaited(made)) if case in (ASYNC, ABREAKER) else made
            if value != 1:
                raise Broken(f"{case} gave {value!r}")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """As often as fits."""
        call = self._calls[case]
        if case in (ASYNC, ABREAKER):
            return asyncio.run(_aslice(call, seconds))
        done = 0
        cpu, begin = time.process_time(), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(BURST):
                call()
            done += BURST
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        # Nothing here waits, so the CPU's time is the time; another's slice of the CPU is not ours to count.
        return {"operations": done, "seconds": cpu, "cpu": cpu, "elapsed": elapsed}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """There is nothing to trace here."""
        raise Broken(f"no {operations} traced operations of {case}")

    def close(self) -> None:
        """Nothing to let go of."""


async def _awaited(made: Any) -> Any:
    return await made


async def _aslice(call: Callable[[], Any], seconds: float) -> dict[str, Any]:
    done = 0
    cpu, begin = time.process_time(), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for _ in range(BURST):
            await call()
        done += BURST
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"operations": done, "seconds": cpu, "cpu": cpu, "elapsed": elapsed}
