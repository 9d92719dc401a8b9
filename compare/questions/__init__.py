"""
The questions: one file each, with how it is asked and how its answer is said.

A question's module has one `QUESTION`. `ask` does something to a peer and returns what was seen, as data that JSON can
hold; `say` makes a sentence of that data, and of nothing else; `cell` the few words for a table. `right` is what is
asked of Onceward: `make compare` fails if it is not so. `better` says whether a peer's answer is better than ours,
from the two answers, and `best` what is better about it; the page begins with those.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare.peers import FUNCTION, of_kind

Data = dict[str, Any]
NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


@dataclass(frozen=True)
class Question:
    """One question, for every peer of a kind."""

    name: str
    title: str
    """As a reader asks it."""
    how: str
    """What the script does, in a sentence or two."""
    ask: Callable[[Any], Data]
    say: Callable[[Data], str]
    cell: Callable[[Data], str]
    right: Callable[[Data], bool]
    better: Callable[[Data, Data], str | None] = lambda ours, theirs: None
    """Ours and theirs: None, or that theirs is better, with a figure if there is one."""
    best: Callable[[Data], str] = lambda ours: ""
    """What those that are better do, and what we do instead: made from our answer."""
    kind: str = FUNCTION
    server: bool = False
    """Asked on a server's store only."""
    only: tuple[str, ...] = ()
    """The names of those it can be asked of; all of its kind if empty."""
    row: str = ""
    """Its title in the short table."""
    order: int = 50
    """Where it stands on the page."""

    def asks(self, peer: str) -> bool:
        """Whether a package of this name is asked."""
        return any(one.name == peer for one in of_kind(self.kind)) and (not self.only or peer in self.only)


def questions() -> dict[str, Question]:
    """Every question by its name, in the order of the page."""
    found = [
        importlib.import_module(f"{__name__}.{module.name}").QUESTION
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if not module.name.startswith("_")
    ]
    return {one.name: one for one in sorted(found, key=lambda one: (one.order, one.name))}


def number(value: int) -> str:
    """A number as a word, where it is small."""
    return NUMBERS[value] if value < len(NUMBERS) else f"{value:,}"


def effects(value: int) -> str:
    """How many effects there were."""
    return f"{number(value)} effect{'' if value == 1 else 's'}"


def got(outcome: Mapping[str, Any]) -> str:
    """What a caller got."""
    if outcome.get("raised") == "nothing came":
        return f"nothing {outcome['message']}"
    return f"`{outcome['raised']}`" if "raised" in outcome else "a result"
