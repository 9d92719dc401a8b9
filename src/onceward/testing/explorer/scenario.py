"""
A scenario: who acts, what may go wrong, and what the outside is like. A small value; the search tries all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from onceward._core.terms import DEFAULT_TERMS, Terms
from onceward.testing.explorer.actors import Actor


class AdvanceTime(NamedTuple):
    """The store's clock moves by so many microseconds (it may go back)."""

    microseconds: int

    def __str__(self) -> str:
        seconds = self.microseconds / 1e6
        return f"the store's clock is set back {-seconds:g} s" if seconds < 0 else f"{seconds:g} s pass"


class Purge(NamedTuple):
    """Someone purges."""

    def __str__(self) -> str:
        return "someone purges"


class Forget(NamedTuple):
    """The store loses what it was last told, as in a failover: while somebody holds a claim, and nothing is settled."""

    def __str__(self) -> str:
        return "the store forgets"


class Erase(NamedTuple):
    """Someone erases the scope, which leaves a mark."""

    def __str__(self) -> str:
        return "someone erases everything"


ScenarioEvent = AdvanceTime | Purge | Forget | Erase


class LookUp(NamedTuple):
    """
    An effect of an operator's flow: look where the effect takes place, whether it did.

    An operator looks at what is in doubt, and not while a living holder is about to act: nobody could then know.
    """

    at: str
    id: bytes


class Watch(NamedTuple):
    """An effect of a renewer's flow: find the function of that actor running, and what it holds."""

    at: str
    actor: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something to try in every order."""

    name: str
    story: str
    """What is tried, in one line."""
    actors: tuple[Actor, ...]
    terms: Terms = DEFAULT_TERMS
    events: tuple[ScenarioEvent, ...] = ()
    """What happens to the store, in this order, at any time."""
    crashes: int = 0
    """How many actors may die, anywhere: before an effect, or after it and before its answer."""
    losses: int = 0
    """How many store calls may go unanswered: performed or not, the caller cannot know."""
    interrupts: int = 0
    """How many times Ctrl-C or a cancellation may strike, anywhere: before an effect is performed, or after."""
    lag: int = 0
    """How long a claim waits in the store after its lease has begun, in microseconds."""
    outside: str = "plain"
    """`plain`: every run is an effect; `keyed`: the downstream knows a key again; `fenced`: it refuses lower fences."""
    zombies: bool = True
    """Whether time may pass while a living holder has not yet begun its function (it slept, or was stopped)."""
    together: bool = False
    """Whether puts are sent in batches."""
    serial: bool = False
    """Whether one transaction at a time is open (SQLite's BEGIN IMMEDIATE), or rows are locked (PostgreSQL)."""
    effects_max: int | None = 1
    """How many effects there may be for one key. None: running again is harmless."""
    limit: str = ""
    """Set on a scenario that shows what is *not* promised: the invariant that must break, to prove the limit real."""
    index: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The number of each actor, by its name."""

    @property
    def forgets(self) -> bool:
        """Whether a function commits its rows without settling them: then they stand without their record."""
        return any(actor.body.inside == "forgets" for actor in self.actors)

    def __post_init__(self) -> None:
        numbered = tuple(replace(actor, index=number) for number, actor in enumerate(self.actors))
        object.__setattr__(self, "actors", numbered)
        self.index.update((actor.name, actor.index) for actor in numbered)
