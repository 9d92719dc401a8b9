"""Spend: what calls cost is reserved before them and settled after them, and nobody passes the cap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from colours import COLOURS, Colour
from onceward import NOT_FOUND, ConfigurationError, Found
from onceward._core import spend_state
from onceward.agents import AgentGate, ForModel, Framework, NotFinal, Spend, Tool, ToolCall, actual_price
from onceward.errors import SpendExhausted, StoreCorrupt, StoreUnavailable
from onceward.retry import Retry
from servers import postgres

SCOPE = "test:shop"
HERE = Path(__file__).resolve().parent


class Interrupt(BaseException):
    """Control flow of a framework."""


PAUSING = Framework("pausing", control_flow=(Interrupt,))


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Any:
    """Blocking or awaiting."""
    made = Colour(request.param)
    yield made
    made.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty store."""
    return f"sqlite:///{tmp_path}/agent.db"


def opened(
    url: str = "memory://", limit: Any = "1.00", price: Any = "0.40", per: str = "run", **more: Any
) -> AgentGate:
    """A gate with a cap, and tools that all cost the same."""
    spend = Spend("usd", limit=limit, per=per)
    return AgentGate(url, scope=SCOPE, spend=spend, default=Tool("blind", price=price), wait=0, **more)


def call(number: int, run: str = "order-1") -> ToolCall:
    """One of several calls."""
    return ToolCall(run, "render", {"number": number})


def fail(error: BaseException) -> Any:
    """A tool that raises."""
    raise error


def sums(view: Any) -> tuple[str, str, str]:
    """Spent, reserved, left."""
    return str(view.spent), str(view.reserved), str(view.left)


class TestTheCap:
    """How much is too much."""

    @pytest.mark.fault("a-price-is-not-checked-against-the-cap")
    def test_at_the_cap_the_next_call_is_refused_and_what_ran_stays(self, colour: Colour) -> None:
        """
        Two calls of 0.40 fit under 1.00; the third is not made, and the model reads why, without an invitation to
        repeat. What costs less still fits.
        """
        gate, effects = opened(tools={"small": Tool("blind", price="0.20")}), []
        answers = [colour.ask(gate, "call", call(n), lambda n=n: effects.append(n) or n) for n in range(3)]
        small = colour.ask(gate, "call", ToolCall("order-1", "small", {}), lambda: "done")
        view = colour.ask(gate, "spent", "order-1")
        colour.ask(gate, "close")

        assert answers[:2] == [0, 1]
        assert isinstance(answers[2], ForModel)
        assert (answers[2].code, answers[2].ran, answers[2].in_doubt) == ("spend_exhausted", False, False)
        assert "0.2 usd are left of 1, and this call costs 0.4" in answers[2].text
        assert "What was done before stands" in answers[2].text
        assert effects == [0, 1]
        assert small == "done"
        assert sums(view) == ("1", "0", "0")

    def test_without_a_cap_everything_runs(self) -> None:
        """
        The negative control.
        """
        effects: list[int] = []
        with AgentGate("memory://", scope=SCOPE, default=Tool("blind", price="0.40")) as gate:
            for number in range(3):
                gate.call(call(number), lambda n=number: effects.append(n))

        assert effects == [0, 1, 2]

    def test_each_run_has_the_cap_for_itself_unless_it_is_shared(self, colour: Colour) -> None:
        """
        `per="run"` and `per="scope"`; any other name is shared by those who give it.
        """
        refused = {}
        for per in ("run", "scope", "team-7"):
            gate = opened(per=per)
            answers = [colour.ask(gate, "call", call(n, f"order-{n}"), lambda: "done") for n in range(3)]
            refused[per] = [isinstance(one, ForModel) for one in answers]
            view = colour.ask(gate, "spent", "order-0")
            assert str(view.spent) == ("0.4" if per == "run" else "0.8")
            colour.ask(gate, "close")

        assert refused == {
            "run": [False, False, False],
            "scope": [False, False, True],
            "team-7": [False, False, True],
        }

    def test_a_raised_limit_lets_the_same_call_through(self, url: str) -> None:
        """
        The refused call left nothing behind: its key is free.
        """
        with opened(url, limit="0.10") as gate:
            refused = gate.call(call(1), lambda: "done")
        with opened(url, limit="10") as gate:
            answer = gate.call(call(1), lambda: "done")

        assert isinstance(refused, ForModel)
        assert answer == "done"

    def test_a_refusal_is_terminal_for_frameworks(self) -> None:
        """
        A RuntimeError that says never, which no framework retries by default; nor does our own policy.
        """
        with opened(limit="0.10", retry=Retry(attempts=3)) as gate:
            told = gate.call(call(1), lambda: "done")

        assert isinstance(told.error, SpendExhausted)
        assert isinstance(told.error, RuntimeError)
        assert (told.error.left, told.error.price, told.error.retry.value) == ("0.1", "0.4", "never")


class TestWhatACallCosts:
    """Prices, reserved and actual."""

    def test_a_price_may_be_a_function_of_the_arguments(self, colour: Colour) -> None:
        """
        Exact: text, int and Decimal, never a float.
        """
        gate = opened(price=lambda arguments: Decimal("0.1") * arguments["number"])
        for number in (0, 1, 2):
            colour.ask(gate, "call", call(number), lambda: "done")
        view = colour.ask(gate, "spent", "order-1")
        colour.ask(gate, "close")

        assert sums(view) == ("0.3", "0", "0.7")

    def test_a_tool_may_say_what_it_really_cost(self, colour: Colour) -> None:
        """
        Less gives the rest back; more is spent all the same, also beyond the cap, and then nothing is left.
        """
        gate = opened()
        colour.ask(gate, "call", call(1), lambda: actual_price("0.05"))
        less = colour.ask(gate, "spent", "order-1")
        colour.ask(gate, "call", call(2), lambda: actual_price(Decimal(2)))
        more = colour.ask(gate, "spent", "order-1")
        refused = colour.ask(gate, "call", call(3), lambda: "done")
        colour.ask(gate, "close")

        assert sums(less) == ("0.05", "0", "0.95")
        assert sums(more) == ("2.05", "0", "0")
        assert isinstance(refused, ForModel)

    def test_a_wrong_word_about_the_price_does_not_fail_the_tool(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        It has had its effect. What was reserved is settled; and outside of a call the word is nothing at all.
        """
        actual_price("0.05")
        with opened() as gate:
            answer = gate.call(call(1), lambda: actual_price(0.05) or "done")  # type: ignore[arg-type, func-returns-value]
            view = gate.spent("order-1")

        assert answer == "done"
        assert sums(view)[0] == "0.4"
        assert "no float" in caplog.text

    def test_a_replay_costs_nothing(self, colour: Colour) -> None:
        """
        However often.
        """
        gate = opened()
        for _ in range(5):
            assert colour.ask(gate, "call", call(1), lambda: "done") == "done"
        view = colour.ask(gate, "spent", "order-1")
        colour.ask(gate, "close")

        assert sums(view) == ("0.4", "0", "0.6")

    @pytest.mark.fault("a-released-call-keeps-its-price")
    def test_what_had_no_effect_costs_nothing(self, colour: Colour) -> None:
        """
        An interrupt, a result that is not final: the price is given back with the key.
        """
        gate = opened()
        with pytest.raises(Interrupt):
            colour.ask(gate, "call", call(1), lambda: fail(Interrupt()), framework=PAUSING)
        colour.ask(gate, "call", call(2), lambda: fail(NotFinal("approve?")), framework=PAUSING)
        view = colour.ask(gate, "spent", "order-1")
        state = spend_state.spend_state_of(gate.blocking.store.load(Spend("usd", 1).cap(SCOPE, "order-1").shared.id))
        colour.ask(gate, "close")

        assert sums(view) == ("0", "0", "1")
        assert state.open == {}

    def test_doubt_keeps_its_price_until_somebody_decides(self, colour: Colour) -> None:
        """
        It may have happened. If it did not, there is room again; if it did, it was spent.
        """
        gate = opened()
        for number in (1, 2):
            colour.ask(gate, "call", call(number), lambda: fail(ValueError("x")), tell_errors=True)
        doubtful = colour.ask(gate, "spent", "order-1")
        refused = colour.ask(gate, "call", call(3), lambda: "done")
        first, second = gate.blocking.records.in_doubt()
        gate.blocking.reconcile(first.key, NOT_FOUND)
        gate.blocking.reconcile(second.key, Found("done"))
        decided = colour.ask(gate, "spent", "order-1")
        answer = colour.ask(gate, "call", call(3), lambda: "done")
        colour.ask(gate, "close")

        assert sums(doubtful) == ("0", "0.8", "0.2")
        assert isinstance(refused, ForModel)
        assert sums(decided) == ("0.4", "0", "0.6")
        assert answer == "done"

    def test_a_held_call_is_counted_too(self, colour: Colour) -> None:
        """
        A call that the framework makes itself: reserved while it is held, refused at the cap, given back if it fails
        before anything happened.
        """
        gate = opened(limit="0.50")
        held = colour.ask(gate, "open_call", call(1))
        during = colour.ask(gate, "spent", "order-1")
        refused = colour.ask(gate, "open_call", call(2))
        colour.run(held.end, "done")
        after = colour.ask(gate, "spent", "order-1")
        colour.ask(gate, "close")

        assert sums(during) == ("0", "0.4", "0.1")
        assert isinstance(refused, ForModel)
        assert refused.code == "spend_exhausted"
        assert sums(after) == ("0.4", "0", "0.1")

    def test_several_attempts_under_one_claim_are_one_price(self) -> None:
        """
        A policy of ours repeats what is safe to repeat: the call costs what it costs.
        """
        failures = [ConnectionRefusedError(), ConnectionRefusedError()]

        def flaky() -> str:
            if failures:
                raise failures.pop()
            return "done"

        tools = {"render": Tool("repeatable", price="0.40", options={"retry": Retry(attempts=3, base=0.001)})}
        with opened(tools=tools) as gate:
            answer = gate.call(call(1), flaky)
            view = gate.spent("order-1")

        assert answer == "done"
        assert sums(view) == ("0.4", "0", "0.6")

    @pytest.mark.parametrize("wrong", [0.1, "-1", -1, "1e99", "a lot", "0.0000000001", True, float("nan")])
    def test_what_is_no_amount_is_refused_when_the_gate_is_made(self, wrong: Any) -> None:
        """
        A price, and a limit; of a function, when it is asked, before anything runs.
        """
        effects: list[int] = []
        with pytest.raises(ConfigurationError, match="must be an amount"):
            opened(price=wrong)
        with pytest.raises(ConfigurationError, match="must be an amount"):
            Spend("usd", limit=wrong)
        with opened(price=lambda arguments: wrong) as gate, pytest.raises(ConfigurationError, match="price of render"):
            gate.call(call(1), lambda: effects.append(1))
        with opened() as gate:
            assert gate.call(call(1), lambda: "done") == "done"

        assert effects == []

    def test_a_read_only_tool_has_no_price(self) -> None:
        """
        It never goes through the gate, so nobody would count it: said where the tool is.
        """
        with pytest.raises(ConfigurationError, match="Tool\\('repeatable', price"):
            Tool("read-only", price="0.01")


class TestTheStore:
    """Where it is kept, and what happens without it."""

    def test_if_the_store_cannot_be_reached_the_call_is_not_made(
        self, colour: Colour, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Fails closed: money is not spent on a guess.
        """
        gate, effects = opened(), []
        store = (gate.awaiting if colour.awaits else gate.blocking).store
        put = store.put

        def away(write: Any, expect: Any) -> Any:
            return fail(StoreUnavailable()) if write.kind == "spend" else put(write, expect)

        monkeypatch.setattr(store, "put", away)
        with pytest.raises(StoreUnavailable):
            colour.ask(gate, "call", call(1), lambda: effects.append(1))
        monkeypatch.undo()

        assert effects == []
        assert colour.ask(gate, "call", call(1), lambda: "done") == "done"
        colour.ask(gate, "close")

    def test_if_it_is_gone_after_the_call_the_answer_stands(
        self, colour: Colour, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        The price stays reserved, and the record says that it was spent.
        """
        gate = opened()
        store = (gate.awaiting if colour.awaits else gate.blocking).store
        put, writes = store.put, []

        def away(write: Any, expect: Any) -> Any:
            if write.kind == "spend":
                writes.append(write)
            return fail(StoreUnavailable()) if len(writes) > 1 and write.kind == "spend" else put(write, expect)

        monkeypatch.setattr(store, "put", away)
        answer = colour.ask(gate, "call", call(1), lambda: "done")
        monkeypatch.undo()
        view = colour.ask(gate, "spent", "order-1")
        colour.ask(gate, "close")

        assert answer == "done"
        assert "stays reserved" in caplog.text
        assert sums(view) == ("0.4", "0", "0.6")

    def test_a_record_that_cannot_be_read_is_an_error(self) -> None:
        """
        And not an empty purse: nothing runs.
        """
        effects: list[int] = []
        with opened() as gate:
            gate.call(call(1), lambda: "done")
            cap = Spend("usd", limit=1).cap(SCOPE, "order-1")
            found = gate.blocking.store.load(cap.shared.id)
            assert found is not None
            broken = spend_state.shared_write(cap.shared, {"spent": "a lot"}, found, bytes(range(48)))
            assert gate.blocking.store.put(broken, found.version).landed
            with pytest.raises(StoreCorrupt, match="records show"):
                gate.call(call(2), lambda: effects.append(1))

        assert effects == []

    @pytest.mark.fault("settled-prices-are-never-folded")
    def test_the_record_stays_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        So many may be open at once; then those that are known to be over are folded into the sum, and if none is, the
        next call is refused with words that say so.
        """
        monkeypatch.setattr(spend_state, "OPEN_MAX", 3)
        gate = opened(limit=100, price=1)
        held = [gate.open_call(call(number)) for number in range(3)]
        refused = gate.call(call(3), lambda: "done")
        for one in held:
            one._beside = None  # Its process dies after the gate's settle, and before the price is settled.
            one.end("done")
        answer = gate.call(call(3), lambda: "done")
        view = gate.spent("order-1")
        gate.close()

        assert isinstance(refused, ForModel)
        assert "under way or in doubt" in refused.text
        assert answer == "done"
        assert sums(view) == ("4", "0", "96")

    def test_a_claim_that_was_overtaken_gives_nothing_back(self) -> None:
        """
        A reservation belongs to the latest claim of its call: an earlier one can neither settle it nor give it back.
        """
        gate = opened()
        cap, store = Spend("usd", limit=1).cap(SCOPE, "order-1"), gate.blocking.store
        old = spend_state.PriceReservation(b"r" * 32, 5, 400)
        new = old._replace(fence=6)
        _run(store, spend_state.reserve(cap, old))
        _run(store, spend_state.reserve(cap, new))
        _run(store, spend_state.give_back(cap, old))
        _run(store, spend_state.settle(cap, old, 7))
        between = _run(store, spend_state.look(cap))
        for _ in range(2):
            _run(store, spend_state.settle(cap, new, 300))
        after = _run(store, spend_state.look(cap))
        gate.close()

        assert (between.spent, between.reserved) == (0, 400)
        assert (after.spent, after.reserved) == (300, 0)


def _run(store: Any, flow: Any) -> Any:
    from onceward.gate.store_runner import run_on_store

    return run_on_store(store, flow)


_AGENT = """
import json, os, signal, sys, threading
from onceward.agents import AgentGate, ForModel, Spend, Tool, ToolCall
url, name, how = sys.argv[1:4]
gate = AgentGate(url, scope="test:shop", spend=Spend("usd", limit="10", per="scope"),
                 default=Tool("keyed" if how == "die" else "blind", price="1"))

def charge(number):
    file = os.open("effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{name} {number}\\n".encode())
    os.close(file)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"

def agent(part):
    for number in range(5):
        run = "order-1" if how in ("die", "again") else f"{name}-{part}"
        gate.call(ToolCall(run, "charge", {"number": number}), lambda: charge(number))

if how == "race":
    threads = [threading.Thread(target=agent, args=(part,)) for part in range(2)]
    [one.start() for one in threads]
    [one.join() for one in threads]
else:
    agent(0)
view = gate.spent()
print(json.dumps([str(view.spent), str(view.reserved), str(view.left)]))
gate.close()
"""


def _start(url: str, folder: Path, name: str, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _AGENT, url, name, how],
        cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


@pytest.mark.parametrize("kind", postgres.kinds())
@pytest.mark.fault("a-price-is-checked-and-then-written")
@pytest.mark.slow
def test_parallel_agents_in_several_processes_never_pass_the_cap(kind: str, tmp_path: Path) -> None:
    """
    Three processes with two agents each want thirty calls of 1 under a cap of 10: exactly ten are made.
    """
    url = _url(kind, tmp_path)
    agents = [_start(url, tmp_path, f"agent-{number}", "race") for number in range(3)]
    told = [one.communicate(timeout=240)[0] for one in agents]
    effects = (tmp_path / "effects").read_text().splitlines()

    assert [one.returncode for one in agents] == [0, 0, 0]
    assert len(effects) == 10
    assert len(set(effects)) <= 10
    assert json.loads(told[-1])[2] == "0"
    with AgentGate(url, scope=SCOPE, spend=Spend("usd", limit="10", per="scope")) as gate:
        assert sums(gate.spent()) == ("10", "0", "0")


@pytest.mark.slow
def test_a_call_that_is_made_again_after_a_crash_is_reserved_once(tmp_path: Path) -> None:
    """
    A keyed tool is killed after its effect, and sent again by the next process, which finds the price reserved.
    """
    url = f"sqlite:///{tmp_path}/agent.db"
    first = _start(url, tmp_path, "first", "die")
    first.communicate(timeout=240)
    with AgentGate(url, scope=SCOPE, spend=Spend("usd", limit="10", per="scope")) as gate:
        between = gate.spent()
    tools = {"charge": Tool("keyed", price="1")}
    with AgentGate(url, scope=SCOPE, spend=Spend("usd", limit="1", per="scope"), tools=tools) as gate:
        answer = gate.call(ToolCall("order-1", "charge", {"number": 0}), lambda: "done")
        after = gate.spent()

    assert first.returncode == -signal.SIGKILL
    assert sums(between) == ("0", "1", "9")
    assert answer == "done"
    assert sums(after) == ("1", "0", "0")


def test_threads_of_one_process_never_pass_the_cap() -> None:
    """
    Twenty threads at once, in a store in memory: the cap holds for every interleaving that comes up.
    """
    effects: list[int] = []
    gate = opened(limit=5, price=1)
    ready = threading.Barrier(20)

    def agent(number: int) -> None:
        ready.wait()
        gate.call(call(number), lambda: effects.append(number))

    threads = [threading.Thread(target=agent, args=(number,)) for number in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    view = gate.spent("order-1")
    gate.close()

    assert len(effects) == 5
    assert sums(view) == ("5", "0", "0")


def _url(kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/agent.db"
    server = postgres.running()
    server.execute("DROP DATABASE IF EXISTS agent_spend")
    server.execute("CREATE DATABASE agent_spend")
    return server.url("agent_spend")
