"""A server that is away: before a call, in the middle of one, and back again. Nobody hears a driver's exceptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward.runtime.environment import REAL
from onceward.testing.store_suite.candidates import NetworkLine
from onceward.testing.store_suite.fixtures import Do, Steps, Together, Tried
from onceward.testing.store_suite.rows import row, without_durations
from onceward.testing.store_suite.store_under_test import StoreUnderTest
from onceward.testing.store_suite.test_failures import CALLS

CROWD, PUTS = 8, 12
BACK_SECONDS_MAX = 60
"""How long a store may take to notice that its server is back. For hanging only."""


class TestAServerThatIsAway:
    """The line to the store is cut, and later restored."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    def test_every_call_says_that_it_is_away(
        self, do: Do, distant: Any, line: NetworkLine, scope: str, call: Callable[[Any, str], Any]
    ) -> None:
        """
        `StoreUnavailable` or a child of it, whatever the driver raises; also when it is asked again.
        """
        do(distant.put(row(scope, "before"), None))
        line.cut()

        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                do(call(distant, scope))

    def test_the_same_handle_goes_on_when_it_is_back(
        self, do: Do, distant: Any, line: NetworkLine, scope: str, tried: Tried
    ) -> None:
        """
        Nobody has to open the store again, and what was written before is there.
        """
        before = do(distant.put(row(scope, "before"), None)).record
        line.cut()
        away = do(tried(lambda: distant.load(before.id)))
        line.restore()

        assert isinstance(away, StoreUnavailable)
        assert without_durations(before) == without_durations(_once_back(do, tried, lambda: distant.load(before.id)))
        assert True is _once_back(do, tried, lambda: distant.put(row(scope, "after"), None)).landed

    def test_closing_it_then_is_fine_or_says_so(
        self, do: Do, distant: Any, line: NetworkLine, scope: str, tried: Tried
    ) -> None:
        """
        Whoever lets go of a store whose server is away hears no driver, either.
        """
        do(distant.put(row(scope), None))
        line.cut()
        told = do(tried(distant.close))

        assert told is None or isinstance(told, StoreUnavailable), repr(told)

    def test_opened_while_it_is_away_it_says_so(
        self, do: Do, place: StoreUnderTest, line: NetworkLine, opened: Callable[..., Any], scope: str, tried: Tried
    ) -> None:
        """
        When it is opened, or at the first call: a process that starts before its server is told in our words.
        """
        line.cut()
        told: Any
        try:
            early = opened(place.over(line))
            told = do(tried(lambda: early.load(row(scope).id)))
        except Exception as error:
            told = error
        line.restore()
        later = opened(place.over(line))

        assert isinstance(told, StoreUnavailable), repr(told)
        assert True is _once_back(do, tried, lambda: later.put(row(scope), None)).landed

    def test_cut_in_the_middle_nothing_that_was_answered_is_lost_and_nothing_lands_twice(
        self, do: Do, distant: Any, line: NetworkLine, scope: str, tried: Tried, together: Together
    ) -> None:
        """
        A crowd writes while the line is cut. What was answered stands there; what was not is sent again, and lands or
        is recognised by its own version; and every error is one of ours.
        """
        writes = [[row(scope, f"k{n}-{m}") for m in range(PUTS)] for n in range(CROWD)]

        answers = together(*(_written(distant, own, line, n == 0, tried) for n, own in enumerate(writes)))
        line.restore()
        pairs = [pair for own, told in zip(writes, answers, strict=True) for pair in zip(own, told, strict=True)]
        odd = [told for _, told in pairs if isinstance(told, Exception) and not isinstance(told, StoreUnavailable)]
        stands = [_once_back(do, tried, lambda one=write: distant.load(one.id)) for write, _ in pairs]  # type: ignore[misc]
        again = [_once_back(do, tried, lambda one=write: distant.put(one, None)) for write, _ in pairs]  # type: ignore[misc]

        assert odd == []
        assert any(isinstance(told, StoreUnavailable) for _, told in pairs)
        assert [write.version for write, told in pairs if _landed(told)] == [
            found.version for (_, told), found in zip(pairs, stands, strict=True) if _landed(told) and found is not None
        ]
        assert [write.version for write, _ in pairs] == [standing.record.version for standing in again]


class TestDamage:
    """A store in a folder of this machine, whose files are not what they were."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    def test_no_exception_of_a_driver_gets_out(
        self,
        do: Do,
        place: StoreUnderTest,
        opened: Callable[..., Any],
        scope: str,
        call: Callable[[Any, str], Any],
        tried: Tried,
        tmp_path: Path,
    ) -> None:
        """
        Opened on files that somebody has overwritten, every call works or raises an error of ours.
        """
        if not place.candidate.kind.local:
            pytest.skip("the store is not on this machine")
        first = opened()
        do(first.put(row(scope, "before"), None))
        do(first.close())
        files = [one for one in tmp_path.rglob("*") if one.is_file()]
        if not files:
            pytest.skip("the store keeps no files in the folder that it was given")
        for one in files:
            one.write_bytes(b"no store has ever written this\n" * 200)

        try:
            damaged = opened()
            told = do(tried(lambda: call(damaged, scope)))
        except OncewardError:
            return  # It says so when it is opened.
        if isinstance(told, Exception) and not isinstance(told, OncewardError):
            raise told


def _written(store: Any, writes: list[Any], line: NetworkLine, cuts: bool, tried: Tried) -> Steps:
    """Put all of these; one of the crowd cuts the line in the middle."""
    told = []
    for number, write in enumerate(writes):
        if cuts and number == PUTS // 2:
            line.cut()
        answer = yield tried(lambda one=write: store.put(one, None))  # type: ignore[misc]
        told.append(answer)
    return told


def _landed(told: Any) -> bool:
    return not isinstance(told, Exception) and bool(told.landed)


def _once_back(do: Do, tried: Tried, call: Callable[[], Any]) -> Any:
    """The answer of a call that may find the store away for a little longer."""
    give_up = REAL.monotonic() + BACK_SECONDS_MAX
    while isinstance(told := do(tried(call)), StoreUnavailable):
        if REAL.monotonic() > give_up:
            raise told
        REAL.sleep(0.01)
    if isinstance(told, Exception):
        raise told
    return told
