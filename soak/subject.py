"""
What is soaked. A subject knows how to do an operation, and how to find out afterwards what became of it.

A subject is a module in `soak/subjects/` and a line in its `SUBJECTS`. It brings the processes that it needs (those are
killed in turn), sends operations as a real client would, and counts effects where they are: in the database's own file,
never by asking what is being judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from soak.processes import Managed, Victim


class Keys(Enum):
    """What clients do about keys. Only the first is right; the others are there to see the soak go red."""

    KEPT = "kept"
    """Every attempt of an operation carries its key."""
    NEW = "new"
    """Every attempt makes a key of its own."""
    NONE = "none"
    """No attempt carries any."""


class Attempt(NamedTuple):
    """One sending of one operation."""

    operation: str
    """Its name, which is in whatever it writes."""
    number: int
    """The operation's number: a subject chooses by it what kind of operation this is."""
    tries: int
    """How often it was sent before."""
    keys: Keys

    @property
    def key(self) -> str | None:
        """What it is sent under."""
        if self.keys is Keys.NONE:
            return None
        return self.operation if self.keys is Keys.KEPT else f"{self.operation}-{self.tries}"


class World(NamedTuple):
    """Where it happens."""

    folder: Path
    service: Managed


class Subject(Protocol):
    """What is soaked."""

    name: str

    def victims(self) -> list[Victim]:
        """What is killed for it besides the service and its workers, in the order in which they are started."""

    async def prepare(self) -> None:
        """Make what the operations need."""

    async def send(self, client: int, attempt: Attempt) -> str:
        """Do it as client number so-and-so; what the answer said, as text. Raises if there was no good answer."""

    async def settle(self) -> None:
        """Once everybody was answered: wait for what goes on by itself (a relay that delivers)."""

    def effects(self, *, settled: bool) -> Counter[str]:
        """
        How often each operation has had its effect, read from where the effects are; nobody is at work meanwhile.

        `settled` says whether `settle` was waited for. Before that, an effect that is still on its way counts as one.
        """

    async def close(self) -> None:
        """Let go of connections."""


Maker = Callable[[World, int], Subject]
"""Makes a subject for so many clients."""


class Verdict(NamedTuple):
    """What the effects say about what clients were told."""

    lost: list[str]
    """Acknowledged, and not there."""
    doubled: list[str]
    """There more than once."""
    strange: list[str]
    """There, and nobody has asked for it."""

    @property
    def holds(self) -> bool:
        """Whether all is well."""
        return not (self.lost or self.doubled or self.strange)


def judge(effects: Mapping[str, int], acknowledged: set[str], sent: set[str]) -> Verdict:
    """Effects against what clients know. What was sent and not acknowledged may be there once, or not."""
    return Verdict(
        sorted(one for one in acknowledged if effects.get(one, 0) < 1),
        sorted(one for one, times in effects.items() if times > 1),
        sorted(one for one in effects if one not in sent),
    )
