"""A place where senders of either colour may die, from one text."""

from __future__ import annotations

from pathlib import Path

from sender import LEASE_SECONDS, Sender, effects, prepare


class Place:
    """A folder with the records and the outside world, and the colour of those who send there."""

    def __init__(self, folder: Path, colour: str) -> None:
        self.folder, self.colour = folder, colour
        self._senders: list[Sender] = []
        prepare(folder)

    def sender(self, guarantee: str, ending: str = "return", *, later: float = LEASE_SECONDS + 1) -> Sender:
        """A sender in this process; after a dead holder's lease, unless it is said when."""
        sender = Sender(self.folder, self.colour, guarantee, ending, later)
        self._senders.append(sender)
        return sender

    def arguments(self, guarantee: str, ending: str, *armed: str) -> list[str]:
        """What a sender in a process of its own is given."""
        return [str(self.folder), self.colour, guarantee, ending, *armed]

    def effects(self, guarantee: str) -> int:
        """How many charges the world has seen."""
        return effects(self.folder, guarantee)

    def close(self) -> None:
        for sender in self._senders:
            sender.close()
