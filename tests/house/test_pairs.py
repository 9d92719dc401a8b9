"""Every class that comes in two colours offers the same in both: what blocks can also be awaited."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"

OTHERWISE_NAMED = {
    "onceward.tables.shells.Awaiting": "onceward.tables.shells.Blocking",
}
"""Pairs whose names do not say so."""

NOT_FOR_USERS = {
    "onceward.gate.afterwards.AsyncAfterwards": "a task looks at its one run; the blocking one's thread at all of them",
    "onceward.gate.joining.sqlalchemy.AsyncJoinedSqlalchemy": "an adapter; nested transactions are told in another way",
    "onceward.gate.performing.AsyncPerformer": "does at once what takes no time, so that nobody waits for it",
    "onceward.gate.renewal.AsyncRenewer": "renews in tasks; the blocking one has a thread to sweep and to close",
    "onceward.gate.waiting.AsyncBell": "rings in a loop; the blocking one has a lock",
    "onceward.stores._postgres_async_links.AsyncLinks": "connections in a loop; puts and abandons them by itself",
}
"""Parts of the shells, whose two halves do what their colour needs, with the reason."""

_HTTPX = "httpx names it so"
_BEHIND = "for a service, which writes notes behind its answers and awaits them"
ONLY_BLOCKING = {
    "onceward.http.httpx.AsyncTransport": {"close": _HTTPX, "handle_request": _HTTPX},
    "onceward.http.httpx2.AsyncTransport": {"close": _HTTPX, "handle_request": _HTTPX},
    "onceward.tables.shells.Awaiting": {"perform": "what a thread does for the awaiting one"},
}
"""What only the blocking half has, with the reason."""

ONLY_AWAITING = {
    "onceward.http.httpx.AsyncTransport": {"aclose": _HTTPX, "handle_async_request": _HTTPX},
    "onceward.http.httpx2.AsyncTransport": {"aclose": _HTTPX, "handle_async_request": _HTTPX},
    "onceward.journal.shells.AsyncJournal": {"find": _BEHIND, "flush": _BEHIND, "put": _BEHIND},
    "onceward.stores.postgres.AsyncPostgresStore": {"identify": "awaits which server it is; the blocking one knows"},
    "onceward.tables.shells.Awaiting": {"call": "blocking callers call by themselves"},
}
"""What only the awaiting half has, with the reason."""

TAKES_OTHERWISE: dict[str, dict[str, str]] = {}
"""Methods that take other parameters in the two colours, with the reason."""


class Pair(NamedTuple):
    """A class for those who block, and one for those who await."""

    blocking: str
    awaiting: str


def pairs() -> Iterator[Pair]:
    """Every pair that the source has: `Async` before the name, in the same package."""
    known = {name for names in classes().values() for name in names}
    for package, names in classes().items():
        for awaiting in names:
            bare = awaiting.rpartition(".")[2]
            if awaiting in OTHERWISE_NAMED:
                yield Pair(OTHERWISE_NAMED[awaiting], awaiting)
            elif bare.startswith("Async") and awaiting not in NOT_FOR_USERS:
                found = [one for one in classes()[package] if one.rpartition(".")[2] == bare.removeprefix("Async")]
                # In the same file, or beside it.
                same = [one for one in found if one.rpartition(".")[0] == awaiting.rpartition(".")[0]]
                yield Pair((same or found or [f"(none in {package})"])[0], awaiting)
    assert known >= {*OTHERWISE_NAMED, *OTHERWISE_NAMED.values(), *NOT_FOR_USERS}


@cache
def classes() -> dict[str, list[str]]:
    """Classes at the top of every module, by package; nothing is imported for it."""
    found: dict[str, list[str]] = {}
    for path in sorted((SRC / "onceward").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        found.setdefault(".".join(parts[:-1]), []).extend(".".join((*parts, name)) for name in names)
    return found


def loaded(name: str) -> Any:
    """A class by its whole name."""
    module, _, bare = name.rpartition(".")
    return getattr(importlib.import_module(module), bare)


def offered(kind: type[Any]) -> dict[str, tuple[str, ...]]:
    """The public methods and properties of a class, with what each takes."""
    found = {}
    for name in dir(kind):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(kind, name)
        fn = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
        found[name] = tuple(inspect.signature(fn).parameters) if inspect.isroutine(fn) else ()
    return found


def differences(blocking: type[Any], awaiting: type[Any]) -> dict[str, set[str]]:
    """What one has and the other has not, and what takes something else."""
    ours, theirs = offered(blocking), offered(awaiting)
    return {
        "only blocking": ours.keys() - theirs.keys(),
        "only awaiting": theirs.keys() - ours.keys(),
        "takes otherwise": {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]},
    }


PAIRS = list(pairs())


def test_the_pairs_are_found() -> None:
    """
    Those that users know are among them, so that the tests below look at something.
    """
    names = {pair.awaiting.rpartition(".")[2] for pair in PAIRS}

    assert names >= {
        "AsyncGate", "AsyncPlan", "AsyncSequence", "AsyncWindow", "AsyncRecords", "AsyncDeadLetterBox", "AsyncInbox",
        "AsyncOutbox", "AsyncAccess", "AsyncClient", "AsyncDatabase", "AsyncBalance", "AsyncJournal", "AsyncEmitter",
        "AsyncLedger", "Awaiting",
    }  # fmt: skip
    assert [] == [pair.awaiting for pair in PAIRS if pair.blocking.startswith("(none")]


@pytest.mark.fault("the-awaiting-inbox-lacks-a-method", "the-awaiting-access-cannot-erase")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.awaiting.rpartition(".")[2])
def test_both_colours_offer_the_same(pair: Pair) -> None:
    """
    The same public methods, which take the same parameters; what differs stands above, with its reason.
    """
    found = differences(loaded(pair.blocking), loaded(pair.awaiting))

    assert found == {
        "only blocking": set(ONLY_BLOCKING.get(pair.awaiting, ())),
        "only awaiting": set(ONLY_AWAITING.get(pair.awaiting, ())),
        "takes otherwise": set(TAKES_OTHERWISE.get(pair.awaiting, ())),
    }


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.awaiting.rpartition(".")[2])
def test_both_colours_enter_a_block_in_their_own_way(pair: Pair) -> None:
    """
    `with` for one, `async with` for the other: both, or neither.
    """
    blocking, awaiting = loaded(pair.blocking), loaded(pair.awaiting)

    assert hasattr(blocking, "__enter__") == hasattr(awaiting, "__aenter__")


def test_the_check_itself() -> None:
    """
    A method that is missing, one too many, and one that takes something else are seen.
    """

    class Blocks:
        def both(self, one: int) -> None: ...
        def other(self, one: int) -> None: ...
        def missing(self) -> None: ...

    class Awaits:
        async def both(self, one: int) -> None: ...
        async def other(self, two: int) -> None: ...
        async def more(self) -> None: ...

    assert differences(Blocks, Awaits) == {
        "only blocking": {"missing"},
        "only awaiting": {"more"},
        "takes otherwise": {"other"},
    }
