"""One budget and one breaker for many processes, on the records' own store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from retry_support import REFUSED, Script, Sleepless

from onceward import AsyncGate, CircuitOpen, ConfigurationError, Gate, Retry, StoreUnavailable
from onceward.retry import Breaker, Budget
from onceward.stores import Capabilities, capabilities_of, open_async_store, open_store
from onceward.stores.memory import AsyncMemoryStore, MemoryStore
from servers import postgres, redis

_numbers = count()


class Counting:
    """A store that counts its calls, and can be away or hang."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls = 0
        self.away = False
        self.hang: threading.Event | None = None

    @property
    def capabilities(self) -> Capabilities:
        return capabilities_of(self._store)

    def load(self, id: bytes) -> Any:
        return self._pass(self._store.load, id)

    def put(self, write: Any, expect: bytes | None) -> Any:
        return self._pass(self._store.put, write, expect)

    def _pass(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        if self.hang is not None:
            self.hang.wait(30)
        if self.away:
            raise StoreUnavailable
        return call(*arguments)


@pytest.fixture
def store(still: Sleepless) -> Counting:
    return Counting(MemoryStore(environment=still))


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://shared-{next(_numbers)}"
        case "sqlite":
            return f"sqlite:///{tmp_path}/shared.db"
        case "postgres":
            return postgres.running().url("onceward")
        case _:
            return redis.running().url()


@pytest.fixture
def name() -> Iterator[str]:
    yield f"dependency-{next(_numbers)}-{threading.get_ident()}"


class TestBudget:
    """What is shared, what it costs, and what happens without the store."""

    def test_two_processes_have_one_budget_between_them(self, url: str, name: str) -> None:
        """
        On every store: ten retries in all, whoever asks.
        """
        stores = [open_store(url) for _ in range(2)]
        budgets = [Budget.shared(one, name, patience=20) for one in stores]

        granted = [budgets[turn % 2].withdraw() for turn in range(14)]

        assert 10 == sum(paid is not None for paid in granted)
        for one in stores:
            one.close()

    def test_the_awaiting_colour_shares_with_the_blocking_one(self, url: str, name: str) -> None:
        """
        A blocking and an awaiting gate of the same scope: one budget.
        """
        if url.startswith("memory"):
            pytest.skip("a memory store of one colour is not seen by the other")
        gate = Gate(url, scope="test:acme")
        blocking = Budget.shared(gate, name, patience=20)

        async def main() -> int:
            other = AsyncGate(url, scope="test:acme")
            budget = Budget.shared(other, name, patience=20)
            granted = [await budget.awithdraw() for _ in range(6)]
            await other.close()
            return sum(paid is not None for paid in granted)

        assert 6 == asyncio.run(main())
        assert 4 == sum(blocking.withdraw() is not None for _ in range(6))
        gate.close()

    def test_calls_that_succeed_never_touch_the_store(self, store: Counting, still: Sleepless) -> None:
        """
        A thousand of them: no call. They are handed in with the next retry, in one visit.
        """
        budget = Budget.shared(store, "payments", patience=20, environment=still)
        policy = Retry(budget=budget, environment=still)
        for _ in range(1_000):
            policy.call(Script("done"))
        assert 0 == store.calls
        policy.call(Script(REFUSED, "done"))

        assert 2 == store.calls  # One look, one swap.

    def test_successes_of_one_pay_for_retries_of_another(self, store: Counting, still: Sleepless) -> None:
        """
        They are handed in with the next retry that is wanted there.
        """
        one, two = (Budget.shared(store, "p", burst=2, patience=20, environment=still) for _ in range(2))
        assert [1, 1, None] == [two.withdraw() for _ in range(3)]
        for _ in range(20):
            one.succeeded()
        one.withdraw()
        still.advance(2)

        assert 1 == two.withdraw()

    def test_a_refusal_is_believed_for_a_while(self, store: Counting, still: Sleepless) -> None:
        """
        For `staleness` seconds nobody asks again; then somebody does.
        """
        budget = Budget.shared(store, "p", burst=1, patience=20, staleness=1, environment=still)
        assert [1, None] == [budget.withdraw() for _ in range(2)]
        asked = store.calls
        assert [None] * 50 == [budget.withdraw() for _ in range(50)]
        assert asked == store.calls
        still.advance(1.1)
        assert budget.withdraw() is None

        assert store.calls > asked

    def test_a_store_that_is_away_leaves_the_local_rule(self, store: Counting, still: Sleepless) -> None:
        """
        The process's own ten retries; and the store is not asked again for a while.
        """
        budget = Budget.shared(store, "p", patience=20, environment=still)
        assert budget.connect()
        store.away, before = True, store.calls
        granted = sum(budget.withdraw() is not None for _ in range(20))

        assert (10, 1) == (granted, store.calls - before)

    @pytest.mark.fault("a-cold-process-has-a-burst-of-its-own")
    def test_before_the_store_has_answered_once_there_is_no_burst(self, store: Counting, still: Sleepless) -> None:
        """
        Only successes pay for retries then; once the store has answered, the budget is the store's.
        """
        store.away = True
        budget = Budget.shared(store, "p", patience=20, environment=still)
        assert (False, 0) == (budget.connect(), sum(budget.withdraw() is not None for _ in range(20)))
        for _ in range(11):
            budget.succeeded()
        assert 1 == sum(budget.withdraw() is not None for _ in range(20))
        store.away = False
        still.advance(2)

        assert 10 <= sum(budget.withdraw() is not None for _ in range(20)) <= 11

    def test_an_awaiting_process_connects_as_well(self, still: Sleepless) -> None:
        """
        The same in the other colour.
        """

        async def main() -> tuple[bool, int]:
            budget = Budget.shared(AsyncMemoryStore(environment=still), "p", patience=20, environment=still)
            connected = await budget.aconnect()
            return connected, sum([await budget.awithdraw() is not None for _ in range(12)])

        assert (True, 10) == asyncio.run(main())

    def test_a_store_that_hangs_holds_nobody_up(self, store: Counting, still: Sleepless) -> None:
        """
        After `patience` the local rule decides; whoever hangs, hangs alone.
        """
        budget = Budget.shared(store, "p", patience=0.02, environment=still)
        assert budget.connect()
        store.hang, before = threading.Event(), store.calls

        assert 1 == budget.withdraw()
        assert 1 == budget.withdraw()
        assert 1 == store.calls - before
        store.hang.set()

    def test_a_hundred_who_ask_at_once_cost_a_few_visits(self, store: Counting, still: Sleepless) -> None:
        """
        One goes for all who are waiting.
        """
        budget = Budget.shared(store, "p", burst=40, patience=20, environment=still)

        async def main() -> list[float | None]:
            return await asyncio.gather(*(budget.awithdraw() for _ in range(100)))

        granted = asyncio.run(main())
        assert 40 == sum(paid is not None for paid in granted)
        assert store.calls <= 20

    def test_a_record_that_somebody_else_wrote_is_a_full_bucket(self, store: Counting, still: Sleepless) -> None:
        """
        Nothing in the store can break a call.
        """
        budget = Budget.shared(store, "p", patience=20, environment=still)
        budget.withdraw()
        cell = budget._cell  # type: ignore[attr-defined]
        found = store.load(cell.id)
        from onceward._core.shared import _write

        store.put(_write(cell, {"not": "levels"}, found, bytes(range(48))), found.version)

        assert 10 == sum(budget.withdraw() is not None for _ in range(12))

    @pytest.mark.parametrize("options", [{"staleness": 0}, {"patience": 61}, {"patience": "1"}, {"scope": "two words"}])
    def test_options_that_cannot_work_are_refused(self, store: Counting, options: dict[str, Any]) -> None:
        """
        When it is made; and so is something that is no store.
        """
        with pytest.raises(ConfigurationError):
            Budget.shared(store, "p", **options)
        with pytest.raises(ConfigurationError, match="a gate or a store"):
            Budget.shared(object(), "p")  # type: ignore[arg-type]


CLIENT = """
import sys
from onceward.retry import Budget, Retry, stop_of
from onceward.stores import open_store
from onceward.testing import no_sleeping

url, kind, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(url)
# Cold: no answer of the store can be in time, as when it is being connected to.
patience = 1e-9 if kind == "cold" else 20
budget = Budget() if kind == "alone" else Budget.shared(store, "server", patience=patience, staleness=0.05)
policy, sent = Retry(budget=budget), 0


def server():
    global sent
    sent += 1
    if sent % 2:
        raise ConnectionRefusedError


with no_sleeping():
    for _ in range(calls):
        try:
            policy.call(server)
        except Exception as error:
            assert stop_of(error) is not None, error
print(sent)
"""


class TestManyClients:
    """Brooker's point: a budget per process loses its effect as the processes multiply."""

    @staticmethod
    def sent(url: str, kind: str, clients: int, calls: int) -> int:
        command = [sys.executable, "-W", "error", "-c", CLIENT, url, kind, str(calls)]
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(clients)
        ]
        done = [process.communicate(timeout=120) for process in processes]
        assert [""] * clients == [
            "".join(line for line in err.splitlines() if "onceward:" not in line) for _, err in done
        ]
        return sum(int(out) for out, _ in done)

    @pytest.mark.requirement("D69")
    @pytest.mark.slow
    def test_four_processes_with_one_budget_amplify_little_and_with_four_budgets_much(self, tmp_path: Path) -> None:
        """
        Short-lived clients, ten calls each, every first attempt failing: the shared budget bounds the load to the
        calls, the burst and a tenth of the successes; four budgets of their own let every retry through.
        """
        url = f"sqlite:///{tmp_path}/shared.db"
        offered = 4 * 10
        shared = self.sent(url, "shared", 4, 10)
        alone = self.sent(url, "alone", 4, 10)

        assert offered + 10 <= shared <= offered + 10 + 0.1 * offered + 1
        assert 2 * offered == alone

    @pytest.mark.slow
    @pytest.mark.fault("a-cold-process-has-a-burst-of-its-own")
    def test_eight_cold_processes_retry_no_more_than_warm_ones(self, tmp_path: Path) -> None:
        """
        Eight processes whose store has not answered yet, ten calls each, every first attempt failing: together they
        retry no more than one burst and a tenth of the successes, as eight warm ones do.
        """
        offered = 8 * 10
        warm = self.sent(f"sqlite:///{tmp_path}/warm.db", "shared", 8, 10) - offered
        cold = self.sent(f"sqlite:///{tmp_path}/cold.db", "cold", 8, 10) - offered

        assert 10 <= warm <= 10 + 0.1 * offered + 1
        assert cold <= warm


class TestBreaker:
    """Failures of all count; one probe for all."""

    def fail(self, through: Breaker, times: int) -> None:
        for _ in range(times):
            with pytest.raises(REFUSED):
                through.call(Script(REFUSED))

    def test_failures_of_several_processes_open_it_for_all(self, url: str, name: str) -> None:
        """
        On every store: two here, three there; whoever fails next learns that it is open.
        """
        stores = [open_store(url) for _ in range(2)]
        one, two = (Breaker.shared(store, name, staleness=1e-9, patience=20) for store in stores)
        self.fail(one, 2)
        self.fail(two, 3)

        assert "open" == two.state
        self.fail(one, 1)
        with pytest.raises(CircuitOpen):
            one.call(Script("done"))
        for store in stores:
            store.close()

    def test_a_success_anywhere_in_between_begins_the_row_anew(self, store: Counting, still: Sleepless) -> None:
        """
        Four failures here, a success and a failure there: that is a row of one.
        """
        one, two = (Breaker.shared(store, "p", staleness=1e-9, patience=20, environment=still) for _ in range(2))
        self.fail(one, 4)
        two.call(Script("done"))
        self.fail(two, 1)

        assert ("closed", "closed") == (one.state, two.state)

    def test_calls_that_succeed_never_touch_the_store(self, store: Counting, still: Sleepless) -> None:
        """
        A thousand of them: no call.
        """
        through = Breaker.shared(store, "p", patience=20, environment=still)
        for _ in range(1_000):
            through.call(Script("done"))

        assert 0 == store.calls

    def test_one_process_in_all_probes(self, store: Counting, still: Sleepless) -> None:
        """
        Five processes find the recovery over at the same time: one call goes out, and its success closes it for all.
        """
        every = [
            Breaker.shared(store, "p", staleness=0.001, patience=20, probe_lapse=5, environment=still) for _ in range(5)
        ]
        for through in every:
            self.fail(through, 5 if through is every[0] else 1)
        assert ["open"] * 5 == [through.state for through in every]
        still.advance(31)
        tickets = [through.admit() for through in every]
        probing = [ticket for ticket in tickets if isinstance(ticket, int)]
        assert 1 == len(probing)
        every[0].report(tickets[0], "succeeded")
        still.advance(6)

        assert ["done"] * 5 == [through.call(Script("done")) for through in every]
        assert ["closed"] * 5 == [through.state for through in every]

    def test_a_probe_that_dies_gives_its_slot_up(self, store: Counting, still: Sleepless) -> None:
        """
        Another process gets it after `probe_lapse`; the late one's answer is fenced off and changes nothing.
        """
        one, two = (Breaker.shared(store, "p", patience=20, probe_lapse=5, environment=still) for _ in range(2))
        self.fail(one, 5)
        self.fail(two, 1)
        still.advance(31)
        assert isinstance(one.admit(), int)  # And never comes back.
        with pytest.raises(CircuitOpen):
            two.call(Script("done"))
        still.advance(6)

        assert "done" == two.call(Script("done"))

    def test_a_probe_that_fails_keeps_it_open_for_all(self, store: Counting, still: Sleepless) -> None:
        """
        For another recovery.
        """
        one, two = (Breaker.shared(store, "p", patience=20, environment=still) for _ in range(2))
        self.fail(one, 5)
        self.fail(two, 1)
        still.advance(31)
        self.fail(one, 1)
        still.advance(1)

        with pytest.raises(CircuitOpen):
            two.call(Script("done"))

    def test_a_store_that_is_away_leaves_the_local_breaker(self, store: Counting, still: Sleepless) -> None:
        """
        Five failures here open it here, a probe here closes it here.
        """
        store.away = True
        through = Breaker.shared(store, "p", patience=20, environment=still)
        self.fail(through, 5)
        assert "open" == through.state
        still.advance(31)

        assert "done" == through.call(Script("done"))
        assert "closed" == through.state

    def test_the_awaiting_colour_does_the_same(self, tmp_path: Path, still: Sleepless) -> None:
        """
        Opened by an awaiting process, it is open for the next one.
        """
        url = f"sqlite:///{tmp_path}/shared.db"

        async def refused() -> None:
            raise REFUSED

        async def main() -> tuple[str, str]:
            store = open_async_store(url)
            one, two = (Breaker.shared(store, "p", staleness=1e-9, patience=20) for _ in range(2))
            for _ in range(5):
                with pytest.raises(REFUSED):
                    await one.acall(refused)
            with pytest.raises(REFUSED):
                await two.acall(refused)
            await store.close()
            return one.state.value, two.state.value

        assert ("open", "open") == asyncio.run(main())

    @pytest.mark.parametrize("options", [{"rate": 0.5}, {"probes": 2}, {"successes": 2}, {"age": 5}])
    def test_what_cannot_be_shared_is_refused(self, store: Counting, options: dict[str, Any]) -> None:
        """
        When it is made.
        """
        with pytest.raises(ConfigurationError, match="shared breaker"):
            Breaker.shared(store, "p", **options)
