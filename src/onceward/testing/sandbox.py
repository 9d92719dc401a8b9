"""
`Sandbox`: a clock that stands still, a store in memory and a recorder of effects, to be used together.

    sandbox = Sandbox()
    gate = sandbox.gate()                      # or Gate(sandbox.store, scope=..., environment=sandbox.clock)
    sandbox.assert_once(charge, "o-17")

The pytest plugin makes one for each test that asks for it (`onceward_sandbox`); under Hypothesis make one for each
example, by this class.
"""

from __future__ import annotations

import itertools
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack
from weakref import WeakValueDictionary

from onceward._core.errors import ConfigurationError
from onceward._core.terms import Options
from onceward.gate import AsyncGate, Gate
from onceward.stores import StoreKind, memory
from onceward.stores._store_kinds import _loaded
from onceward.stores.memory import AsyncMemoryStore, MemoryStore
from onceward.testing.clock import StillEnvironment
from onceward.testing.effects import Effects
from onceward.testing.simulated_process import own_time

if TYPE_CHECKING:
    from onceward.testing.assert_once import AssertOnce

SCOPE = "test:sandbox"
SCHEME = "sandbox"
_open: WeakValueDictionary[str, Sandbox] = WeakValueDictionary()
_numbers = itertools.count(1)


class SandboxClock(StillEnvironment):
    """
    A still clock that says whether anything uses it.

    A duplicate that waits while the first call is held at a failpoint waits on its own time: the first one is alive
    and would renew its lease, so the duplicate's patience must not run that lease down.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waited = 0.0

    @property
    def used(self) -> int:
        """How many random numbers were drawn from here. A gate draws some for every call."""
        return self._drawn

    def advance(self, by: float | timedelta) -> None:
        """Let so much time pass (seconds or timedelta), on all clocks."""
        if own_time.get():
            self._waited += by.total_seconds() if isinstance(by, timedelta) else by
        else:
            super().advance(by)

    def monotonic(self) -> float:
        """Seconds that have passed; for a duplicate that waits, with those that it has waited."""
        return super().monotonic() + (self._waited if own_time.get() else 0.0)


class Sandbox:
    """One small world for a test: its clock, its store, its effects."""

    def __init__(self) -> None:
        self.clock = SandboxClock()
        self.effects = Effects()
        self.store = MemoryStore(environment=self.clock)
        self.async_store = AsyncMemoryStore(environment=self.clock, rows=self.store._rows)
        self.url = f"{SCHEME}://{next(_numbers)}"
        """Names the same store, on the same clock, for code that takes a URL: give it `environment=sandbox.clock`."""
        self._gates: list[Gate] = []
        _open[self.url] = self
        _loaded[SCHEME] = KIND  # As if it were an entry point, which not every installation would know.

    @property
    def assert_once(self) -> AssertOnce:
        """`assert_once(fn, ...)`, for this sandbox."""
        from onceward.testing.assert_once import AssertOnce

        return AssertOnce(self)

    def gate(self, *, scope: str = SCOPE, **options: Unpack[Options]) -> Gate:
        """A gate on the sandbox's store and clock, that blocks; options as for any gate."""
        _refuse_live(scope)
        gate = Gate(self.store, scope=scope, environment=self.clock, **options)
        self._gates.append(gate)
        return gate

    def awaiting_gate(self, *, scope: str = SCOPE, **options: Unpack[Options]) -> AsyncGate:
        """A gate on the same store and clock, that awaits; options as for any gate."""
        _refuse_live(scope)
        return AsyncGate(self.async_store, scope=scope, environment=self.clock, **options)

    def saved(self) -> SavedStore:
        """What the store holds now, to be put back later."""
        return SavedStore(self.store._rows)

    def close(self) -> None:
        """Discard the store, and close the gates."""
        for gate in self._gates:
            gate.close()
        _open.pop(self.url, None)


class SavedStore:
    """A copy of what a store in memory held."""

    def __init__(self, rows: memory._Rows) -> None:
        self._rows = rows
        with rows.lock:
            self._saved = {id: copy(row) for id, row in rows.rows.items()}
            self._due = list(rows.due)

    def put_back(self) -> None:
        """Let the store hold that again, and nothing else. Fences go on rising."""
        rows = self._rows
        with rows.lock:
            rows.fence_floor = max([rows.fence_floor, *(row.fence for row in rows.rows.values())])
            rows.rows.clear()
            rows.rows.update({id: copy(row) for id, row in self._saved.items()})
            rows.due[:] = self._due


def _refuse_live(scope: str) -> None:
    if scope.startswith("live:"):
        raise ConfigurationError("a sandbox is for tests: give it a scope such as test:acme, not a live: scope")


def _sandbox_of(url: str) -> Sandbox:
    found = _open.get(url)
    if found is None:
        raise ConfigurationError("this sandbox is closed, or in another process: take the URL from an open Sandbox")
    return found


KIND = StoreKind(
    open=lambda url, *, environment: _sandbox_of(url).store,
    open_async=lambda url, *, environment: _sandbox_of(url).async_store,
    local=True,
    processes=False,
)
"""What opens a sandbox's URL: always on the sandbox's own clock."""
