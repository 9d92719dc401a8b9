"""
A crash at each point: processes that are killed with SIGKILL at each point of an operation, for every guarantee, and
what is found afterwards: what the record says, what the next caller gets, and how often the effect took place.

Each is a real process over a real SQLite file. The next caller comes after the lease, so that it is the same on every
machine, whether or not it can see that the process is dead.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from drawings.canvas import Canvas
from onceward import NOT_FOUND, Found, Gate, InDoubt, Operation
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.stores import open_store

LEASE_SECONDS = 60
GuaranteeName = Literal["atomic", "repeatable", "keyed", "probed", "blind"]
GUARANTEES: tuple[GuaranteeName, ...] = ("atomic", "repeatable", "keyed", "probed", "blind")
EFFECT = failpoints.declare("pictures.effect.after", "the effect took place | the function returns")
POINTS = {
    "claim.before": ("before", "the claim"),
    "call.before": ("claimed, before", "the function"),
    EFFECT: ("after the effect,", "before it returns"),
    "settle.before": ("returned, before", "it is stored"),
    "settle.after": ("stored, before", "the caller knows"),
}
"""Where it is killed, in the order of an operation."""
ATOMIC_END = "commit.after"
"""In the caller's transaction it is stored when that commits."""


class Aftermath(NamedTuple):
    """What a crash leaves behind."""

    record: str
    """The state that the store has."""
    next_caller: str
    """What the next caller gets: ran, replayed, probed, in doubt."""
    effects: int
    """How often the effect took place, in the end."""


class _Later(Environment):
    """This machine's clock, past the lease of whoever died."""

    def wall_us(self) -> int:
        return super().wall_us() + (LEASE_SECONDS + 1) * 1_000_000


class _Sender:
    """One caller of the operation, who notes what happens to it."""

    def __init__(self, folder: Path, guarantee: GuaranteeName, environment: Environment | None = None) -> None:
        self._folder, self._guarantee = folder, guarantee
        url = f"sqlite:///{folder / 'store.db'}"
        store = open_store(url) if environment is None else open_store(url, environment=environment)
        self.gate = Gate(store, scope="test:docs", lease=LEASE_SECONDS, wait=0)
        self.ran = self.probed = False

    def send(self) -> None:
        if self._guarantee == "atomic":
            connection = sqlite3.connect(self._folder / "store.db")
            try:
                self.gate.atomic(connection, "charge:17", lambda operation: self._do(connection, operation))
            finally:
                connection.close()
            return
        probe = self._look if self._guarantee == "probed" else None
        self.gate.run("charge:17", self._call, guarantee=self._guarantee, probe=probe)

    def _call(self, operation: Operation) -> str:
        outside = sqlite3.connect(self._folder / "outside.db")
        with outside:
            done = self._do(outside, operation, hit=False)
        outside.close()
        failpoints.hit(EFFECT)
        return done

    def _do(self, connection: sqlite3.Connection, operation: Operation, *, hit: bool = True) -> str:
        self.ran = True
        if self._guarantee == "repeatable":  # It sets, and does not add.
            connection.execute("DELETE FROM charges")
        key = operation.downstream_key() if self._guarantee == "keyed" else None
        connection.execute("INSERT OR IGNORE INTO charges VALUES (?, ?)", (key, operation.key))
        if hit:
            failpoints.hit(EFFECT)
        return "charged"

    def _look(self, operation: Operation) -> object:
        self.probed = True
        outside = sqlite3.connect(self._folder / "outside.db")
        found = outside.execute("SELECT 1 FROM charges WHERE key = ?", (operation.key,)).fetchone()
        outside.close()
        return Found("charged") if found else NOT_FOUND


def aftermath(guarantee: GuaranteeName, point: str) -> Aftermath:
    """Kill a process there, and look."""
    if guarantee == "atomic" and point == "settle.after":
        point = ATOMIC_END
    with tempfile.TemporaryDirectory(prefix="onceward-pictures-") as name:
        folder = Path(name)
        _prepare(folder)
        _die(folder, guarantee, point)
        sender = _Sender(folder, guarantee, _Later())
        found = sender.gate.records.get("charge:17")
        try:
            sender.send()
            got = "runs it" if sender.ran else "replays"
            if sender.probed:
                got = "probe: not found" if sender.ran else "probe: found"
            elif sender.ran and guarantee == "keyed" and found is not None:
                got = "sends it again"
        except InDoubt:
            got = "in doubt"
        sender.gate.close()
        return Aftermath("no record" if found is None else _stored(found.state), got, _effects(folder, guarantee))


def _stored(shown: str) -> str:
    """The stored state: a claim whose lease is over is shown as lapsed, or as in doubt."""
    return "claimed" if shown in ("lapsed", "in_doubt") else shown


def _die(folder: Path, guarantee: GuaranteeName, point: str) -> None:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            sender = _Sender(folder, guarantee)
            failpoints.arm(point, "kill")
            sender.send()
        finally:
            os._exit(1)  # It was to die on the way.
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise RuntimeError(f"{guarantee} never came to {point}")


def _prepare(folder: Path) -> None:
    open_store(f"sqlite:///{folder / 'store.db'}").close()
    for name in ("store.db", "outside.db"):
        connection = sqlite3.connect(folder / name)
        connection.execute("CREATE TABLE charges (downstream TEXT UNIQUE, key TEXT)")
        connection.commit()
        connection.close()


def _effects(folder: Path, guarantee: GuaranteeName) -> int:
    connection = sqlite3.connect(folder / ("store.db" if guarantee == "atomic" else "outside.db"))
    (count,) = connection.execute("SELECT count(*) FROM charges").fetchone()
    connection.close()
    return int(count)


_LEFT, _TOP, _WIDTH, _ROW = 118, 112, 158, 70
_TONES = {"in doubt": "amber", "no record": "grey"}


def draw() -> str:
    """The picture."""
    found = {(guarantee, point): aftermath(guarantee, point) for guarantee in GUARANTEES for point in POINTS}
    told = [
        f"{guarantee}, killed at the point '{' '.join(POINTS[point])}': record: {one.record}; "
        f"next caller: {one.next_caller}; effects: {one.effects}"
        for (guarantee, point), one in found.items()
    ]
    width = _LEFT + _WIDTH * len(POINTS) + 16
    height = _TOP + _ROW * len(GUARANTEES) + 40
    canvas = Canvas(width, height, "A crash at each point", ". ".join(told) + ".")
    canvas.text(
        20,
        52,
        "A process is killed; upper line: what the record says. Lower line: what the next caller gets.",
        "small muted",
    )
    for number, (first, second) in enumerate(POINTS.values()):
        x = _LEFT + _WIDTH * (number + 0.5)
        canvas.text(x, 82, first, "small strong", anchor="middle")
        canvas.text(x, 98, second, "small strong", anchor="middle")
    for row, guarantee in enumerate(GUARANTEES):
        y = _TOP + _ROW * row
        canvas.text(20, y + 36, guarantee, "code strong")
        for column, point in enumerate(POINTS):
            one = found[guarantee, point]
            tone = _TONES.get(one.next_caller, "blue" if one.next_caller != "replays" else "green")
            x = _LEFT + _WIDTH * column
            canvas.box(x + 5, y + 4, _WIDTH - 10, _ROW - 10, tone)
            canvas.text(x + _WIDTH / 2, y + 28, one.record, "small muted", anchor="middle")
            canvas.text(x + _WIDTH / 2, y + 48, one.next_caller, f"strong {tone}", anchor="middle")
    most = max(one.effects for one in found.values())
    unknown = [point for (guarantee, point), one in found.items() if one.next_caller == "in doubt"]
    foot = (
        f"Effects in the end: {most} at most, everywhere. "
        f"In doubt in {len(unknown)} of {len(found)} cases: there somebody decides."
    )
    canvas.text(20, height - 16, foot, "small")
    return canvas.svg()
