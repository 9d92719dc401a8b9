"""
What only keeps books (renewals, events, journals, logs, purges, budgets, breakers) may not raise into an operation, may
not die for good, and may not call a store from a finaliser.

Two halves: the source is parsed for finalisers, each of which must be listed here with its reason; and every
book-keeper is made to raise while operations run, in both colours.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from halving import halves
from source_trees import parsed

from onceward import AsyncGate, Breaker, Budget, Gate, Retry
from onceward.gate import lease_renewer, leases
from onceward.journal import AsyncJournal, Journal
from onceward.runtime.environment import REAL
from onceward.runtime.event_stream import EVENT_STREAM
from onceward.stores.memory import MemoryStore

SRC = Path(__file__).resolve().parents[2] / "src"
FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))

CALLS = frozenset(
    {"put", "load", "extend", "scan", "purge", "run", "submit", "perform", "_perform", "_write", "_write_now"}
)
"""Calls that reach a store, or may."""

ALLOWED: dict[str, str] = {}
"""Finalisers that are there for a reason: `file:line text`, and the reason. There are none."""


def finalisers(text: str) -> Iterator[str]:
    """What runs when something is thrown away: `__del__`, weak references that call back, and closed generators."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "__del__":
            yield f"{node.lineno} __del__"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = f"{getattr(node.func.value, 'id', '')}.{node.func.attr}"
            if name == "weakref.finalize" or (name == "weakref.ref" and len(node.args) > 1):
                yield f"{node.lineno} {name}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_closed_by_collection(node):
            yield from _at_the_end(node)


def _is_closed_by_collection(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A coroutine or a generator: whoever drops it has it closed, and its `except` and `finally` run then."""
    return isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(one, ast.Yield | ast.YieldFrom) for one in _own(node)
    )


def _own(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        yield child
        yield from _own(child)


def _closing(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.AST, str | None]]:
    """What runs where something is left by `GeneratorExit`, in handlers and in `finally`; and the error's name."""
    for one in _own(node):
        if not isinstance(one, ast.Try) or not any(isinstance(inner, ast.Yield | ast.YieldFrom | ast.Await)
                                                   for part in one.body for inner in (part, *_own(part))):  # fmt: skip
            continue
        blocks: list[tuple[list[ast.stmt], str | None]] = [(one.finalbody, None)]
        for handler in one.handlers:
            caught = ast.unparse(handler.type) if handler.type is not None else "BaseException"
            if caught == "GeneratorExit" or "BaseException" in caught:
                blocks.append((handler.body, handler.name))
                break
        yield from ((inner, name) for body, name in blocks for part in body for inner in (part, *_own(part)))


def _at_the_end(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Calls of a store where a generator is left by `GeneratorExit`."""
    for call, _ in _closing(node):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in CALLS:
            continue
        if not ast.unparse(call.func.value).endswith("_queue"):  # Which has no lock that a store's could wait for.
            yield f"{call.lineno} {ast.unparse(call.func)}"


def awaited_at_the_end(text: str) -> Iterator[str]:
    """What is awaited where something may be left by `GeneratorExit`, but for what is told of it and can decide."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.AsyncFunctionDef):
            for one, error in _closing(node):
                told = {inner.id for inner in ast.walk(one) if isinstance(inner, ast.Name)}
                if isinstance(one, ast.Await | ast.AsyncWith | ast.AsyncFor) and error not in told:
                    yield f"{one.lineno} {ast.unparse(one)}"


def test_no_finaliser_calls_a_store() -> None:
    """
    Garbage is collected in any thread, in the midst of anything: also while that thread is inside the store.
    """
    found = [f"{file}:{one}" for file in FILES for one in finalisers((SRC / file).read_text(encoding="utf-8"))]

    assert [one for one in found if one not in ALLOWED] == []


PLANTED = {
    "__del__": "class A:\n    def __del__(self):\n        pass\n",
    "weakref.finalize": "import weakref\nweakref.finalize(a, b)\n",
    "weakref.ref": "import weakref\nweakref.ref(a, b)\n",
    "self.store.put": "async def a(self):\n    try:\n        await b\n    finally:\n        self.store.put(c, d)\n",
    "self._write_now": "def a(self):\n    try:\n        yield\n    except BaseException:\n        self._write_now(c)\n",
    "perform": "async def a():\n    try:\n        await b\n    except GeneratorExit:\n        c.perform(d)\n",
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_check_finds_a_planted_one(what: str) -> None:
    """
    Each kind that it looks for.
    """
    [found] = finalisers(PLANTED[what])

    assert what in found


def test_the_check_lets_a_handled_exit_through() -> None:
    """
    Where `GeneratorExit` is let through first, the handler after it does not run when something is thrown away.
    """
    text = (
        "def a(self):\n    try:\n        yield\n    except GeneratorExit:\n        raise\n"
        "    except BaseException:\n        self.put(c)\n"
    )

    assert list(finalisers(text)) == []


@pytest.mark.fault("an-inbox-awaits-while-it-is-closed")
def test_no_awaiting_half_awaits_while_it_is_closed() -> None:
    """
    A coroutine that is thrown away can await nothing any more: Python says that it ignored `GeneratorExit`, and what
    was to be ended goes on.
    """
    sources = [half.source for half in halves.halves(SRC / "onceward")]
    found = {str(path): list(awaited_at_the_end(path.read_text(encoding="utf-8"))) for path in sources}

    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("async def a():\n    try:\n        await b\n    finally:\n        await c()\n", ["5 await c()"]),
        ("async def a():\n    try:\n        await b\n    except BaseException:\n        await c()\n", ["5 await c()"]),
        ("async def a():\n    try:\n        await b\n    except BaseException as e:\n        await c(e)\n", []),
        ("async def a():\n    try:\n        await b\n    except GeneratorExit:\n        raise\n"
         "    except BaseException:\n        await c()\n", []),
    ],
)  # fmt: skip
def test_what_is_awaited_while_something_is_closed_is_found(text: str, found: list[str]) -> None:
    """
    In a `finally`, or in a handler that takes everything; not where `GeneratorExit` was let through, or is told.
    """
    assert list(awaited_at_the_end(text)) == found


# --- every book-keeper, made to raise ---


class Broken(Exception):
    """What a book-keeper raises here."""


def broken(*_: Any, **__: Any) -> Any:
    raise Broken


def listening(gate: Any, patch: pytest.MonkeyPatch, folder: Path) -> None:
    gate.listen(broken)


def journalling(gate: Any, patch: pytest.MonkeyPatch, folder: Path) -> None:
    kind = AsyncJournal if isinstance(gate, AsyncGate) else Journal
    (folder / "no-database").mkdir()
    gate.listen(kind(f"sqlite:///{folder}/no-database", scope="acme", worker="w").listener())


def renewing(gate: Any, patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(gate._renewer, "_drive", broken)
    patch.setattr(leases, "CHECKS_PER_LEASE", 1_000_000)


def purging(gate: Any, patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(gate.store, "purge", broken)


def following(gate: Any, patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(gate._commit_watcher, "_look", broken)


def logging_(gate: Any, patch: pytest.MonkeyPatch, folder: Path) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise Broken

        def handleError(self, record: logging.LogRecord) -> None:
            """As in production, where nothing is printed either."""

        def handle(self, record: logging.LogRecord) -> bool:
            try:
                self.emit(record)
            except Broken:
                self.handleError(record)
            return True

    log, handler = logging.getLogger("onceward"), Handler()
    patch.setattr(log, "handlers", [handler])
    gate.listen(broken)


def watching(gate: Any, patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(EVENT_STREAM, "listeners", (broken,))
    patch.setattr(EVENT_STREAM, "surroundings", (broken, lambda *_: broken))


KEEPERS: dict[str, Callable[[Any, pytest.MonkeyPatch, Path], None]] = {
    "listener": listening,
    "stream": watching,
    "journal": journalling,
    "renewer": renewing,
    "purge": purging,
    "afterwards": following,
    "log": logging_,
}
RUNS = 12
"""Enough for a purge to come due."""


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
@pytest.mark.fault("a-listener-fails-the-operation")
def test_an_operation_does_not_feel_what_its_book_keepers_do(
    keeper: str, colour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Whatever each of them raises, every run gets its answer and is settled; inside a transaction, too.
    """
    url = f"sqlite:///{tmp_path}/gate.db"
    heard: list[Any] = []
    mine = sqlite3.connect(tmp_path / "gate.db")

    def blocking() -> list[str]:
        with Gate(url, scope="acme", lease=0.2) as gate:
            KEEPERS[keeper](gate, monkeypatch, tmp_path)
            for number in range(RUNS):
                heard.append(attempt(lambda n=number: gate.run(f"k:{n}", lambda: "done")))  # type: ignore[misc]
                heard.append(attempt(lambda n=number: gate.atomic(mine, f"a:{n}", lambda: "done")))  # type: ignore[misc]
            return [one.state for one in gate.records.list()]

    async def awaiting() -> list[str]:
        async with AsyncGate(url, scope="acme", lease=0.2) as gate:
            KEEPERS[keeper](gate, monkeypatch, tmp_path)
            for number in range(RUNS):
                heard.append(await attempt_async(gate.run(f"k:{number}", _done)))
                heard.append(await attempt_async(gate.atomic(mine, f"a:{number}", _done)))
            return [one.state for one in await gate.records.list()]

    states = blocking() if colour == "blocking" else asyncio.run(awaiting())
    mine.close()

    assert heard == ["done"] * 2 * RUNS
    assert states == ["settled"] * 2 * RUNS


def attempt(call: Callable[[], Any]) -> Any:
    """What was returned or raised."""
    try:
        return call()
    except BaseException as error:
        return error


async def attempt_async(work: Any) -> Any:
    """Same as `attempt`, but awaits."""
    try:
        return await work
    except BaseException as error:
        return error


async def _done() -> str:
    return "done"


def test_a_call_does_not_feel_what_its_breaker_and_budget_cannot_tell_others() -> None:
    """
    They count in this process while the store is away: the call gets its answer.
    """

    class Away:
        def put(self, *_: Any) -> Any:
            raise Broken

        def load(self, id: bytes) -> Any:
            raise Broken

    class Leaving(MemoryStore):
        def put(self, *given: Any) -> Any:
            return super().put(*given) if not gone else Away().put()

        def load(self, id: bytes) -> Any:
            return super().load(id) if not gone else Away().load(id)

    gone: list[bool] = []
    gate = Gate(Leaving(environment=REAL), scope="acme")
    budget = Budget.shared(gate, "calls")
    policy = Retry(breaker=Breaker.shared(gate, "provider", threshold=5), budget=budget, safe=True, base=0.001)
    assert budget.connect()  # A process that has never reached the store has no burst of its own.
    gone.append(True)
    tries = iter([ConnectionError("first"), None])

    def call() -> str:
        error = next(tries)
        if error is not None:
            raise error
        return "done"

    assert attempt(lambda: policy.call(call)) == "done"


def test_what_looks_after_leases_and_transactions_is_there_again_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Not dead for good: the thread that met an error looks again.
    """
    again, looks = threading.Event(), []

    def sweep(self: Any) -> None:
        looks.append(1)
        if len(looks) == 1:
            raise Broken
        again.set()

    monkeypatch.setattr(lease_renewer.LeaseRenewer, "sweep", sweep)
    with Gate("memory://", scope="acme", lease=0.06) as gate:
        assert gate.run("k", lambda: again.wait(20)) is True
