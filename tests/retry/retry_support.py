"""What the tests of retries share: a dependency that follows a script, errors with a status, a clock that remembers."""

from __future__ import annotations

from typing import Any

from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward.testing.clock import StillEnvironment

REFUSED = ConnectionRefusedError  # Nothing was sent.
UNKNOWN = TimeoutError  # Nobody knows.


class Script:
    """A dependency that follows a script: errors are raised, the rest is returned; the last line goes on for ever."""

    def __init__(self, *lines: Any) -> None:
        self.lines = lines
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        line = self.lines[min(self.calls, len(self.lines) - 1)]
        self.calls += 1
        if isinstance(line, BaseException) or (isinstance(line, type) and issubclass(line, BaseException)):
            raise line
        return line


class Answer:
    """An answer with a status, as HTTP clients return them."""

    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Failed(Exception):
    """An error that carries a status."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(status)
        self.response = Answer(status, **headers)


class Says:
    """A classifier with one opinion."""

    def __init__(self, certainty: Certainty, kind: Kind, action: Action, wait: float | None = None) -> None:
        self.verdict = Verdict(certainty, kind, action, wait)

    def judge(self, problem: Any, *, now: Any = None) -> Verdict:
        return self.verdict


class Sleepless(StillEnvironment):
    """A still clock that remembers for how long it was asked to sleep."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().asleep(seconds)
