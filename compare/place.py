"""Where an adapter runs, and what it calls: shared by the asking process and the asked ones, so stdlib only."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

Request = dict[str, Any]
PAUSE_SECONDS = 0.02
BIG_BYTES = 2 * 1024 * 1024
FALSY: tuple[Any, ...] = ([], 0, False, "", {})


def patience(seconds: float) -> float:
    """How long a caller tries that gets no result; `COMPARE_PATIENCE` is the most, for a short run."""
    return min(seconds, float(os.environ.get("COMPARE_PATIENCE", "inf")))


class LostResponse(TimeoutError):
    """Sent, and no response came: nobody knows whether it happened."""


class Unstorable:
    """A result that nothing can write down: it holds what only this process has."""

    def __init__(self) -> None:
        self.handle = Path("/dev/null").open("rb")  # noqa: SIM115


@dataclass(frozen=True)
class Place:
    """What an adapter is told: where its records are, and what the user would have said about the operation."""

    folder: Path
    url: str
    lease: float | None = None
    """How long a claim holds, where a peer lets its user say so."""
    repeatable: bool = False
    """Whether the user says that running it twice does no harm."""
    compared: bool = False
    """Whether the user asks for requests to be compared, where that must be asked for."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "folder": str(self.folder)}


@dataclass
class Work:
    """The effect: a line in a file. Then it does what the question is about."""

    folder: Path
    then: str = "return"
    name: str = "first"
    nested: Callable[[str], Any] | None = field(default=None)

    def __call__(self, key: str | None, request: Request) -> Any:
        """The effect, and what comes of it."""
        if self.nested is not None and key == "outer":
            self.nested("inner")
        if self.then == "before":
            self._hold()
        self._effect(key)
        if self.then == "hold":
            self._hold()
        return self._ended(key)

    async def awaited(self, key: str | None, request: Request) -> Any:
        """The same for an event loop: where it holds, it awaits."""
        self._effect(key)
        if self.then == "hold":
            self._tell()
            while not (self.folder / "go").exists():
                await asyncio.sleep(PAUSE_SECONDS)
        return self._ended(key)

    def _effect(self, key: str | None) -> None:
        line = os.open(self.folder / "effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(line, f"{key} {self.name}\n".encode())
        finally:
            os.close(line)

    def _ended(self, key: str | None) -> Any:
        if self.then == "raise":
            raise LostResponse("no response came")
        if self.then == "big":
            return {"charge": "x" * BIG_BYTES}
        if self.then == "unstorable":
            return Unstorable()
        if self.then.startswith("falsy:"):
            return FALSY[int(self.then.removeprefix("falsy:"))]
        return {"charge": f"{key} by {self.name}"}

    def _tell(self) -> None:
        (self.folder / f"held-{self.name}").touch()

    def _hold(self) -> None:
        self._tell()
        while not (self.folder / "go").exists():
            time.sleep(PAUSE_SECONDS)


class Adapter(Protocol):
    """One peer, used as its documentation shows."""

    def call(self, key: str | None, request: Request) -> Any:
        """Run the work once under this key, or get what it gave."""

    def close(self) -> None:
        """Let go of everything."""


class AsyncAdapter(Adapter, Protocol):
    """One that has a form for async functions, too."""

    async def acall(self, key: str | None, request: Request) -> Any:
        """As `call`, awaited."""
