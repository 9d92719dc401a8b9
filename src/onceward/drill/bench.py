"""
`Bench`: what a proof works with, and what is tidied up after it, however it ends.

The store is the user's, in a scope that nobody else knows; the folder, the tables and the processes are ours. Keys,
names and orders come from the seed, so that the same seed gives the same run; the scope does not, so that two runs of
one seed never meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from onceward.drill.database import DrillTable, NotAllowed, is_postgres, is_sqlite, made_schema, made_table
from onceward.drill.drill_gate import open_gate
from onceward.drill.effect_book import EffectBook
from onceward.drill.nursery import Nursery, NurseryKeeper
from onceward.gate.gate import Gate
from onceward.runtime.environment import REAL, SeededRandom


class DrillSetting(NamedTuple):
    """Where and how a drill is run."""

    url: str
    """The store."""
    scope: str
    """The scope of this run alone: `test:` and a random name."""
    folder: Path
    """A folder of our own."""
    nurseries: NurseryKeeper
    seed: int
    times: int = 3
    """How often `retry` inserts the same row."""
    racers: int = 50
    guarded: bool = True
    """False: every guard is taken away, and every proof must fail."""


class Bench:
    """The workplace of one run of one proof."""

    def __init__(self, setting: DrillSetting, proof: str, *, guarded: bool) -> None:
        self.setting = setting
        self.guarded = guarded
        self.scope = setting.scope
        self.random = SeededRandom(f"{setting.seed}/{proof}")
        self.said: list[str] = []
        """Where it worked, if that was not the store alone."""
        side = "guarded" if guarded else "control"
        self._mark = f"{proof}-{side}"
        self.folder = setting.folder / self._mark
        self.folder.mkdir(mode=0o700)
        self.book = EffectBook(self.folder / "effects.db")
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The store's."""
        return self.setting.url

    @property
    def nursery(self) -> Nursery:
        """Processes to be killed."""
        return self.setting.nurseries.get()

    def key(self, name: str) -> str:
        """A key of this run: the same for the same seed."""
        return f"{self._mark}:{name}:{self.random.getrandbits(48):012x}"

    def gate(self, url: str = "", **options: Any) -> Gate:
        """A gate on the store, in the drill's scope; closed when the run ends."""
        return self._stack.enter_context(open_gate(url or self.url, options.pop("scope", self.scope), **options))

    def send(self, gate: Gate, key: str, fn: Callable[[Any], Any], **options: Any) -> tuple[Any, bool]:
        """Send an operation through the gate, or past it if the guard is taken away; its answer, and if replayed."""
        if not self.guarded:
            return fn(None), False
        outcome = gate.call(key, fn, **options)
        return outcome.value, outcome.replayed

    def task(self, do: str, key: str, **more: Any) -> dict[str, Any]:
        """What a child is to do."""
        about = {"url": self.url, "scope": self.scope, "book": str(self.book.path), "guarded": self.guarded}
        return {"do": do, "key": key, "request": {"amount": "12.50"}, **about, **more}

    def own_file(self, name: str = "own.db") -> str:
        """The URL of a SQLite file of our own."""
        return f"sqlite:///{self.folder / name}"

    @contextmanager
    def table(self, *, constrained: bool) -> Iterator[tuple[DrillTable, str]]:
        """A table in the store's own database if it may be made there, otherwise in a file; and the URL of it."""
        name = f"onceward_drill_{REAL.random(8).hex()}"
        why = "the store is not an SQL database"
        if is_sqlite(self.url) or is_postgres(self.url):
            try:
                with made_table(self.url, name, constrained=constrained) as table:
                    self.said.append("a temporary table in the store's database")
                    yield table, self.url
                    return
            except NotAllowed as error:
                why = str(error)
        self.said.append(f"a temporary SQLite file: {why}")
        with made_table(self.own_file(), name, constrained=constrained) as table:
            yield table, self.own_file()

    @contextmanager
    def database(self) -> Iterator[str]:
        """A database where Onceward's own tables may be made: a schema in PostgreSQL, otherwise a SQLite file."""
        why = "Onceward's tables have fixed names"
        if is_postgres(self.url):
            try:
                with made_schema(self.url, f"onceward_drill_{REAL.random(8).hex()}") as url:
                    self.said.append("a temporary schema in the store's database")
                    yield url
                    return
            except NotAllowed as error:
                why = str(error)
        self.said.append(f"a temporary SQLite file: {why}")
        yield self.own_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if error is not None:
            self.setting.nurseries.close()  # With whatever was under way.


def until(seconds: float, done: Callable[[], bool]) -> bool:
    """Ask again and again whether something is done, for so many seconds at most; whether it is."""
    give_up = REAL.monotonic() + seconds
    while not done():
        if REAL.monotonic() > give_up:
            return False
        REAL.sleep(0.02)
    return True
