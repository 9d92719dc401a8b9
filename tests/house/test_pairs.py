"""
What comes in two colours is written once: the blocking half is made of the awaiting one, or it is on a short list.

A pair is a class `AsyncX` and `X`, a function `x_async` (or `async_x`, or `ax`) and `x`, or two such methods of one
class.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import pytest
from halving import ROOT, halves, turned
from source_trees import parsed

SRC = ROOT / "src"

BY_HAND = {
    "onceward.runtime.flow_driver.*": "the two loops that drive a flow, which everything else is built on",
    "onceward.*Environment.asleep": "a thread sleeps and a loop has a timer; tests replace either by itself",
    "onceward.gate.effect_runner.AsyncEffectRunner": "does at once what takes no time, so that nobody waits for it",
    "onceward.gate.lease_renewer.AsyncLeaseRenewer": "a timer in each loop, or one thread; when to renew is in "
    "`leases.py`",
    "onceward.gate.waiter_registry.AsyncWaiterRegistry": "wakes tasks in their loops, or threads",
    "onceward.gate.commit_watcher.AsyncCommitWatcher | onceward.gate.purger.AsyncPurger | "
    "onceward.messaging.emitter.pacer.AsyncPacer": "a task, or a thread: when something is looked at, purged or sent",
    "onceward.adapters.sqlalchemy.*": "SQLAlchemy tells of nested transactions in another way to either colour",
    "onceward.adapters.django.* | onceward.adapters.sqlite3.* | onceward.service.sql.postgres.engine._Joiner.*": "of "
    "one colour: whoever has the other is refused, or waits for short statements",
    "onceward.retry.shared_state_client.*": "carries what breakers and budgets say, in a thread or in a task",
    "onceward.stores.tables.runner.AsyncTablesRunner": "asks in the caller's thread, or in a few of its own; "
    "every shell stands on it",
    "onceward.agents.* | onceward.queues.message_gate.*": "one object for both colours hands each call to the "
    "runner of its colour, which is one text; a framework asks for two methods, of a few lines each",
    "onceward.stores.*": "each store talks to another driver in each colour; the conformance suite is their one text",
}
"""What is written twice all the same, and why: at most twelve entries, each of which is needed."""

NOT_FOR_USERS = {
    "onceward.adapters.sqlalchemy.AsyncSqlalchemyTransaction": "an adapter; nested transactions are told in another "
    "way",
    "onceward.stores._postgres_pool_async.AsyncPostgresConnection": "a connection of psycopg's, with what its two "
    "classes have",
}
"""Classes by hand, whose two halves offer what their colour needs, with the reason."""

_HTTPX = "httpx names it so"
ONLY_BLOCKING = {
    "onceward.http.httpx.AsyncTransport": {"handle_request": _HTTPX},
    "onceward.http.httpx2.AsyncTransport": {"handle_request": _HTTPX},
    "onceward.stores.tables.runner.AsyncTablesRunner": {"perform": "what a thread does for the awaiting one"},
}
"""What only the blocking half has, with the reason."""

ONLY_AWAITING = {
    "onceward.gate.waiter_registry.AsyncWaiterRegistry": {
        "has_waiters": "whether a put is worth a callback; threads ring after any"
    },
    "onceward.http.httpx.AsyncTransport": {"handle_async_request": _HTTPX},
    "onceward.http.httpx2.AsyncTransport": {"handle_async_request": _HTTPX},
    "onceward.retry.retry_runner_async.AsyncRetryRunner": {
        "in_turn": "what takes no time is not awaited; blocking callers see one"
    },
    "onceward.stores._postgres_pool_async.AsyncPostgresPool": {
        "abandon": "a loop may be over before its connections are",
        "look": "tasks of one round look together; a thread that waits for a look may as well claim",
    },
    "onceward.stores.postgres.AsyncPostgresStore": {
        "identify": "awaits which server it is; the blocking one knows",
        "look": "tasks of one round look together; a thread that waits for a look may as well claim",
    },
    "onceward.stores.redis.AsyncRedisStore": {
        "look": "tasks of one round look together; a thread that waits for a look may as well claim"
    },
    "onceward.stores.sqlite.AsyncSqliteStore": {"look": "tasks of one round look together; a thread has `peek`"},
}
"""What only the awaiting half has, with the reason."""

TAKES_OTHERWISE: dict[str, dict[str, str]] = {
    "onceward.runtime.flow_driver.arun": {
        "arun": "asks for what takes no time in another way than for what is awaited"
    },
}
"""Methods and functions that take other parameters in the two colours, with the reason."""


# --- the pairs that the source has ---

Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Pair:
    """What blocks, what awaits, and how the one came about."""

    kind: str
    """class, function, method"""
    blocking: str
    awaiting: str
    check: Callable[[], bool]

    @cached_property
    def made(self) -> bool:
        """Whether the tool makes the blocking one, or it is word for word what the tool would make."""
        return self.check()  # Asked in a test, and not while tests are collected: it takes seconds.


@cache
def sources() -> dict[str, dict[str, Defined]]:
    """What stands at the top of every module; nothing is imported for it."""
    found = {}
    for path in sorted((SRC / "onceward").rglob("*.py")):
        name = ".".join(path.relative_to(SRC).with_suffix("").parts)
        body = parsed(path.read_text(encoding="utf-8")).body
        found[name] = {one.name: one for one in body if isinstance(one, Defined)}
    return found


def _module(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


HALVES = {_module(half.source): half for half in halves.halves(SRC / "onceward")}
"""What is made, by the module that it is made from."""


def target_of(module: str) -> str | None:
    """Which module is made from this one."""
    half = HALVES.get(module)
    return None if half is None else _module(half.target)


def pairs() -> Iterator[Pair]:
    """Every pair: in the module that is made of this one, in the same module, or in the same package."""
    packages: dict[str, list[str]] = defaultdict(list)
    for module in sources():
        packages[module.rpartition(".")[0]].append(module)
    for module, defined in sources().items():
        beside = packages[module.rpartition(".")[0]]
        for name, node in defined.items():
            for bare in sorted(halves._bare(name)):
                homes = [one for one in (target_of(module), module, *beside) if one and bare in sources()[one]]
                if homes:
                    other = sources()[homes[0]][bare]
                    is_target = homes[0] == target_of(module)
                    check = partial(bool, 1) if is_target else partial(is_same_text, other, node)
                    kind = "class" if isinstance(node, ast.ClassDef) else "function"
                    yield Pair(kind, f"{homes[0]}.{bare}", f"{module}.{name}", check)
            if isinstance(node, ast.ClassDef):
                yield from methods(node, f"{module}.{name}")


def methods(node: ast.ClassDef, where: str) -> Iterator[Pair]:
    """Two methods of one class."""
    own = {one.name: one for one in node.body if isinstance(one, Defined)}
    for name, one in own.items():
        for bare in sorted(halves._bare(name) & own.keys()):
            yield Pair("method", f"{where}.{bare}", f"{where}.{name}", partial(is_same_text, own[bare], one))


def is_same_text(blocking: Defined, awaiting: Defined) -> bool:
    """Whether the tool would make one of the other, but for the docstring."""
    names = twin_names() | {awaiting.name: blocking.name}
    try:
        text = turned(ast.unparse(_bared(awaiting)), **names)
    except (halves.Refused, SyntaxError):
        return False
    return ast.dump(ast.parse(text).body[0]) == ast.dump(ast.parse(ast.unparse(_bared(blocking))).body[0])


@cache
def twin_names() -> dict[str, str]:
    """The awaiting names of methods that have a blocking one beside them."""
    texts = (path.read_text(encoding="utf-8") for path in (SRC / "onceward").rglob("*.py"))
    return {awaiting: bare for bare, awaiting in halves.Twins.of(texts).called.items()}


def _bared(node: Defined) -> Defined:
    copied = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(copied, Defined)
    if ast.get_docstring(copied) is not None:
        copied.body = copied.body[1:] or [ast.Pass()]
    return copied


@cache
def all_pairs() -> tuple[Pair, ...]:
    """Asked in a test, and not while tests are collected, as every worker does: all of the source is parsed for it."""
    return tuple(pairs())


def classes() -> list[Pair]:
    """Two classes that users see."""
    return [one for one in all_pairs() if one.kind == "class" and one.awaiting not in NOT_FOR_USERS]


def entry_for(name: str) -> str | None:
    """The entry of the list that a pair is under."""
    return next((one for one in BY_HAND if any(fnmatchcase(name, part) for part in one.split(" | "))), None)


def written_twice(pairs: Iterable[Pair]) -> list[str]:
    """Pairs that nothing makes, and that are on no list."""
    return [pair.awaiting for pair in pairs if not pair.made and entry_for(pair.awaiting) is None]


def test_the_pairs_are_found() -> None:
    """
    Those that users know are among them, so that the tests below look at something.
    """
    names = {pair.awaiting.rpartition(".")[2] for pair in all_pairs()}

    assert names >= {
        "AsyncGate", "AsyncPlan", "AsyncSequence", "AsyncWindow", "AsyncRecords", "AsyncDeadLetterBox", "AsyncInbox",
        "AsyncOutbox", "AsyncAccess", "AsyncClient", "AsyncDatabase", "AsyncBalance", "AsyncJournal", "AsyncEmitter",
        "AsyncLedger", "AsyncTablesRunner", "join_async", "arun", "settle_inside_async", "async_client",
        "open_async_store",
    }  # fmt: skip


def test_nothing_awaits_alone() -> None:
    """
    A class for those who await has one for those who block.
    """
    paired = {pair.awaiting for pair in all_pairs()}
    named = [f"{module}.{name}" for module, defined in sources().items() for name in defined]

    assert [name for name in named if name.rpartition(".")[2].startswith("Async") and name not in paired] == []


@pytest.mark.fault("a-pair-is-written-twice")
def test_every_pair_is_made_or_on_the_list() -> None:
    """
    What is written twice drifts apart. Write the awaiting text, and let `make halves` write the blocking one.
    """
    assert written_twice(all_pairs()) == []


@pytest.mark.fault("an-entry-that-nobody-needs")
def test_the_list_is_short_and_every_entry_is_needed() -> None:
    """
    Twelve at most; one for what is made by now, or has gone, is taken off.
    """
    needed = {entry_for(pair.awaiting) for pair in all_pairs() if not pair.made}

    assert len(BY_HAND) <= 12
    assert BY_HAND.keys() - needed == set()
    assert all(reason for reason in BY_HAND.values())


def test_every_exception_is_about_a_pair() -> None:
    """
    Of something that has gone, or that is no pair any more, nothing is said.
    """
    known = {pair.awaiting for pair in all_pairs()}

    assert {*NOT_FOR_USERS, *ONLY_BLOCKING, *ONLY_AWAITING, *TAKES_OTHERWISE} - known == set()


# --- what both offer ---


def loaded(name: str) -> Any:
    """A class or a function by its whole name."""
    module, _, bare = name.rpartition(".")
    return getattr(importlib.import_module(module), bare)


def taken(fn: Any) -> tuple[tuple[str, Any, Any, str], ...]:
    """What a function takes: names, kinds, defaults and types, in the words of the blocking colour."""
    return tuple(
        (one.name, one.kind, one.default, type_of(str(one.annotation)))
        for one in inspect.signature(fn).parameters.values()
    )


@cache
def type_of(annotation: str) -> str:
    """A type in the words of the blocking colour."""
    try:
        return turned(f"x: {annotation}\n")
    except (halves.Refused, SyntaxError):  # An event loop's own type, or no type at all.
        return annotation


def offered(kind: type[Any]) -> dict[str, tuple[tuple[str, Any, Any, str], ...]]:
    """The public methods and properties of a class, with what each takes."""
    found = {}
    for name in dir(kind):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(kind, name)
        fn = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
        found[name] = taken(fn) if inspect.isroutine(fn) else ()
    return found


def differences(blocking: type[Any], awaiting: type[Any]) -> dict[str, set[str]]:
    """What one has and the other has not, by their blocking names, and what takes something else."""
    ours = offered(blocking)
    names, raw = names_of(awaiting), offered(awaiting)
    # What has both colours in one class (a breaker) keeps both names.
    theirs = {name if names.get(name, name) in raw else names[name]: takes for name, takes in raw.items()}
    return {
        "only blocking": ours.keys() - theirs.keys(),
        "only awaiting": theirs.keys() - ours.keys(),
        "takes otherwise": {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]},
    }


def names_of(awaiting: type[Any]) -> dict[str, str]:
    """How the tool turns names where a class stands: those for all files, and the file's own."""
    half = HALVES.get(awaiting.__module__)
    return {**halves.NAMES, **(half.given if half is not None else {})}


@pytest.mark.fault("the-awaiting-inbox-lacks-a-method", "the-awaiting-access-cannot-erase")
def test_both_colours_offer_the_same() -> None:
    """
    The same public methods, which take the same parameters; what differs stands above, with its reason.
    """
    found = {one.awaiting: differences(loaded(one.blocking), loaded(one.awaiting)) for one in classes()}

    assert found == {
        name: {
            "only blocking": set(ONLY_BLOCKING.get(name, ())),
            "only awaiting": set(ONLY_AWAITING.get(name, ())),
            "takes otherwise": set(TAKES_OTHERWISE.get(name, ())),
        }
        for name in found
    }
    assert len(found) > 10


def test_both_colours_enter_a_block_in_their_own_way() -> None:
    """
    `with` for one, `async with` for the other: both, or neither.
    """
    enter = {
        one.awaiting: (hasattr(loaded(one.blocking), "__enter__"), hasattr(loaded(one.awaiting), "__aenter__"))
        for one in classes()
    }

    assert [name for name, (blocking, awaiting) in enter.items() if blocking != awaiting] == []
    assert (True, True) in enter.values()


def test_both_functions_take_the_same() -> None:
    """
    Functions that are written by hand take the same parameters; what differs stands above, with its reason.
    """
    by_hand = [pair for pair in all_pairs() if pair.kind == "function" and not pair.made]
    other = {pair.awaiting for pair in by_hand if taken(loaded(pair.blocking)) != taken(loaded(pair.awaiting))}

    assert other == TAKES_OTHERWISE.keys() & {pair.awaiting for pair in by_hand}
    assert by_hand


# --- the checks themselves ---


def test_a_pair_that_nothing_makes_is_seen() -> None:
    """
    A method that does less than its twin is not its text; one that is the same but for the colour is.
    """
    [node] = ast.parse(
        "class C:\n"
        "    def a(self):\n        '''Do it.'''\n        return self.b()\n"
        "    async def a_async(self):\n        return await self.b_async()\n"
        "    def b(self): return 1\n"
        "    async def b_async(self): return 2\n"
    ).body
    assert isinstance(node, ast.ClassDef)
    found = list(methods(node, "onceward.new.C"))

    assert [(pair.awaiting, pair.made) for pair in found] == [
        ("onceward.new.C.a_async", True),
        ("onceward.new.C.b_async", False),
    ]
    assert written_twice(found) == ["onceward.new.C.b_async"]


def test_the_check_itself() -> None:
    """
    A method that is missing, one too many, and one that takes something else are seen.
    """

    class Blocks:
        def both(self, one: int) -> None: ...
        def named(self, one: int) -> None: ...
        def typed(self, one: int) -> None: ...
        def optional(self, one: int = 1) -> None: ...
        def missing(self) -> None: ...

    class Awaits:
        async def both(self, one: int) -> None: ...
        async def named(self, two: int) -> None: ...
        async def typed(self, one: str) -> None: ...
        async def optional(self, one: int = 2) -> None: ...
        async def more(self) -> None: ...

    assert differences(Blocks, Awaits) == {
        "only blocking": {"missing"},
        "only awaiting": {"more"},
        "takes otherwise": {"named", "typed", "optional"},
    }
