"""
How far a command is: a line on the terminal, drawn anew and taken away again. Pipes, files and --json get none.

`main` watches over every command that ends by itself (`watching`): after two seconds the line says which command runs
and for how long. Commands whose work has parts say more, with `progress_of`: which share is done, and so how long it
still takes. A thread draws, so that the line also moves while a database is busy with one long statement.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onceward.cli.terminal import clear_before_output, columns, is_terminal

AFTER_SECONDS = 2.0
"""What takes longer says how far it is."""
EVERY_SECONDS = TICK_SECONDS = 0.2
"""Between two drawings at least, and at most."""
ESTIMATE_SECONDS = 1.0
"""A part that has only just begun gives no estimate."""


class ProgressLine:
    """A part of a command's work, and which share of it is done."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._share = 0.0
        self._detail = ""
        self._clock = _clock()
        self.began = self._clock()

    def __call__(self, share: float, detail: str = "") -> None:
        """Which share is done, from 0 to 1 (0: that is not known), and perhaps more words."""
        self._share, self._detail = share, detail
        _screen.draw()

    def text(self, since: float) -> str:
        """The line; `since`: when the whole command began."""
        now = self._clock()
        share, passed = min(self._share, 1.0), now - self.began
        parts = [self._detail]
        if share <= 0:
            parts.append(f"{now - since:.0f} s so far")
        else:
            parts.append(f"{share:.0%}")
            if share >= 1:
                parts.append("nearly done")
            elif passed >= ESTIMATE_SECONDS:
                parts.append(f"about {max(1, round(passed / share - passed)):,} s left")
        return f"{self._label}: {', '.join(part for part in parts if part)}"


class _Screen:
    """The terminal's last line. Safe for threads."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As if nothing was drawn: at first, and in a process that was forked, whose parent goes on drawing."""
        self._guard = threading.RLock()
        self._lines: list[ProgressLine] = []
        self._is_on = self._is_drawn = False
        self._shown = 0.0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Draw within the block."""
        before, self._is_on = self._is_on, True
        try:
            yield
        finally:
            self.clear()
            self._is_on = before

    @contextmanager
    def off(self) -> Iterator[None]:
        """Draw nothing within the block."""
        before, self._is_on = self._is_on, False
        self.clear()
        try:
            yield
        finally:
            self._is_on = before

    @contextmanager
    def line(self, line: ProgressLine) -> Iterator[ProgressLine]:
        """What is drawn within the block is this line, in place of the one before."""
        with self._guard:
            self._lines.append(line)
        try:
            yield line
        finally:
            self.clear()
            with self._guard:
                self._lines.remove(line)

    def draw(self) -> None:
        """Draw the line, if it is time to."""
        with self._guard:
            if not self._is_on or not self._lines:
                return
            now, since = _clock()(), self._lines[0].began
            if now - since < AFTER_SECONDS or (self._is_drawn and now - self._shown < EVERY_SECONDS):
                return
            self._shown, self._is_drawn = now, True
            self._write(self._lines[-1].text(since)[: columns() - 1])

    def clear(self) -> None:
        """Take the line away, so that what follows begins on a clean one."""
        with self._guard:
            if self._is_drawn:
                self._is_drawn = False
                self._write("")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        except (OSError, ValueError):  # The terminal is gone: nobody needs to see it.
            self._is_on = False


_screen = _Screen()
clear_before_output(_screen.clear)
os.register_at_fork(after_in_child=_screen.reset)


@contextmanager
def watching(label: str, *, quiet: bool) -> Iterator[None]:
    """For the length of a command: say how far it is, if somebody looks. Quiet: nothing, as programs want it."""
    if quiet or not is_terminal(sys.stderr):
        yield
        return
    ended = threading.Event()

    def tick() -> None:
        wait = AFTER_SECONDS
        while not ended.wait(wait):
            _screen.draw()
            wait = TICK_SECONDS

    thread = threading.Thread(target=tick, name="onceward-progress", daemon=True)
    with _screen.on(), _screen.line(ProgressLine(label)):
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextmanager
def progress_of(label: str) -> Iterator[ProgressLine]:
    """A part of a command whose share is known, for the length of a `with` block."""
    with _screen.line(ProgressLine(label)) as line:
        yield line


def share_of_ids(after: bytes) -> float:
    """How far a walk over records in order of id is: ids are hashes, so they are spread evenly."""
    return int.from_bytes(after[:4].ljust(4, b"\0"), "big") / 2**32


asking = _screen.off
"""A block in which somebody is asked something at the terminal."""


def _clock() -> Callable[[], float]:
    from onceward.runtime.environment import REAL  # Here, so that `--help` does not wait for it.

    return REAL.monotonic
