# blocking half: store_runner.py; arun=run, asleep=sleep
"""
Runs a flow on a store without a gate: for operators, who have no scope.
"""

from __future__ import annotations

from typing import Any, TypeVar

from onceward._core.colour import AWAITS
from onceward._core.errors import ConfigurationError
from onceward._core.flow import CheckProcess, Effect, Flow, Load, Put, RandomBytes, Sleep
from onceward._core.store_protocols import AsyncStore
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.flow_driver import arun

T = TypeVar("T")


async def run_on_store_async(store: AsyncStore, flow: Flow[T], *, environment: Environment = REAL) -> T:
    """Run a flow of an operator's on a store."""

    def instant(effect: Effect) -> Any:
        match effect:
            case RandomBytes():
                return environment.random(48)
            case CheckProcess():
                return environment.lives(effect.process)
        raise ConfigurationError(f"an operator's flow does not need {type(effect).__name__}")

    def perform(effect: Effect) -> Any:
        match effect:
            case Put():
                return store.put(effect.write, effect.expect)
            case Load():
                return store.load(effect.id)
            case Sleep():
                return environment.asleep(effect.seconds)
        return instant(effect)

    if AWAITS:
        return await arun(flow, instant, perform)
    else:  # noqa: RET505 - it is all that the blocking half has
        return run(flow, perform)  # noqa: F821
