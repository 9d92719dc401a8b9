"""The still environment: time passes when told to, and chance repeats itself."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from onceward.testing.clock import START_US, StillEnvironment


@pytest.fixture
def still() -> StillEnvironment:
    return StillEnvironment()


class TestTime:
    """Two clocks, and who moves them."""

    def test_it_stands_still(self, still: StillEnvironment) -> None:
        """
        However often it is asked, it is the same time.
        """
        assert [(still.wall_us(), still.monotonic()) for _ in range(3)] == [(START_US, 0.0)] * 3

    @pytest.mark.parametrize("by", [90, 90.0, timedelta(minutes=1, seconds=30)])
    def test_it_advances_by_seconds_or_a_timedelta(self, still: StillEnvironment, by: float | timedelta) -> None:
        """
        Both clocks move by as much.
        """
        still.advance(by)

        assert (still.wall_us(), still.monotonic()) == (START_US + 90_000_000, 90.0)

    def test_a_century_is_counted_to_the_microsecond(self, still: StillEnvironment) -> None:
        """
        No microsecond is lost on the way through a float.
        """
        still.advance(timedelta(days=36_525, microseconds=1))

        assert still.wall_us() == START_US + 36_525 * 86_400 * 1_000_000 + 1

    def test_it_does_not_run_backwards(self, still: StillEnvironment) -> None:
        """
        Refused, and nothing has moved.
        """
        with pytest.raises(ValueError, match="jump"):
            still.advance(-1)

        assert (still.wall_us(), still.monotonic()) == (START_US, 0.0)

    def test_the_wall_clock_jumps_either_way_and_no_time_passes(self, still: StillEnvironment) -> None:
        """
        As when an administrator sets it.
        """
        still.jump(timedelta(days=-60))
        back = still.wall_us()
        still.jump(120)

        assert back == START_US - 60 * 86_400 * 1_000_000
        assert (back + 120_000_000, 0.0) == (still.wall_us(), still.monotonic())

    def test_moved_from_many_threads_nothing_is_lost(self, still: StillEnvironment) -> None:
        """
        Eight threads advance it a thousand times each.
        """
        threads = [threading.Thread(target=lambda: [still.advance(1) for _ in range(1_000)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert still.monotonic() == 8_000.0


class TestWaiting:
    """Sleeping and waiting move the clock."""

    def test_sleeping_moves_the_clock(self, still: StillEnvironment) -> None:
        """
        An hour's sleep takes no time, and an hour has passed.
        """
        still.sleep(3_600)
        asyncio.run(still.asleep(3_600))
        still.sleep(-1)

        assert still.monotonic() == 7_200.0

    def test_waiting_for_what_has_happened_takes_no_time(self, still: StillEnvironment) -> None:
        """
        An event that is set ends the wait before it begins; one that is not takes the whole wait.
        """
        event, awaited = threading.Event(), asyncio.Event()
        event.set()
        awaited.set()
        still.wait(event, 60)
        asyncio.run(still.await_event(awaited, 60))
        at_once = still.monotonic()
        still.wait(threading.Event(), 60)
        asyncio.run(still.await_event(asyncio.Event(), 60))

        assert (at_once, still.monotonic()) == (0.0, 120.0)

    @pytest.mark.parametrize("way", ["asleep", "await_event"])
    def test_other_tasks_get_their_turn(self, still: StillEnvironment, way: str) -> None:
        """
        An awaiting sleep lets the others run, and a wait ends at once if one of them sets the event.
        """

        async def both() -> list[str]:
            seen: list[str] = []
            event = asyncio.Event()

            async def other() -> None:
                seen.append("other")
                event.set()

            task = asyncio.create_task(other())
            await (still.asleep(60) if way == "asleep" else still.await_event(event, 60))
            seen.append("sleeper")
            await task
            return seen

        assert asyncio.run(both()) == ["other", "sleeper"]
        assert (60.0 if way == "asleep" else 0.0) == still.monotonic()


class TestChance:
    """Bytes from a seed."""

    def test_the_same_seed_gives_the_same_bytes(self) -> None:
        """
        A run can be repeated; another seed is another run.
        """
        one, two, other = StillEnvironment(), StillEnvironment(), StillEnvironment(seed="other")
        sizes = (16, 48, 0, 1, 100)

        drawn = [one.random(size) for size in sizes]

        assert [*sizes] == [len(some) for some in drawn]
        assert drawn == [two.random(size) for size in sizes]
        assert drawn[:2] != [other.random(size) for size in sizes[:2]]

    def test_no_bytes_come_twice(self, still: StillEnvironment) -> None:
        """
        Also not from many threads at once: tokens must differ.
        """
        drawn: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: drawn.extend([still.random(16) for _ in range(500)])) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(set(drawn)) == 4_000
