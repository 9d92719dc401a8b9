"""Looks of one round of an event loop are one read, and a look that comes to nothing harms nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import pytest

from onceward._core.record_types import PeekResult
from onceward.stores._event_loop_looks import ALONE, TOGETHER_MAX, AwaitedLooks, EventLoopLooks

ROW = PeekResult("settled", b"\1", None, None, "json/1", b"1", None, 1, 1, 1)


class Reads:
    """What was read together; awaited or at once."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[list[bytes]] = []
        self.failure = failure
        self.may_answer = asyncio.Event()

    def at_once(self, ids: list[bytes]) -> Mapping[bytes, PeekResult]:
        self.asked.append(ids)
        if self.failure is not None:
            raise self.failure
        return {id: ROW for id in ids if id != b"none"}

    async def awaited(self, ids: list[bytes]) -> Mapping[bytes, PeekResult]:
        found = self.at_once(ids)
        await self.may_answer.wait()
        return found


class TestAtOnce:
    """At a store whose reads take microseconds."""

    def test_those_of_one_round_are_one_read(self) -> None:
        """
        Each gets its own row; where there is none, None. The next round is another read, and none is too long.
        """
        reads = Reads()

        async def main() -> list[PeekResult | None]:
            loop, looks = asyncio.get_running_loop(), EventLoopLooks(reads.at_once)
            found = await asyncio.gather(*[looks.look(id, loop) for id in (b"a", b"none", b"a")])
            await asyncio.gather(*[looks.look(b"%d" % number, loop) for number in range(TOGETHER_MAX + 1)])
            return found

        assert asyncio.run(main()) == [ROW, None, ROW]
        assert [len(ids) for ids in reads.asked] == [3, TOGETHER_MAX, 1]

    def test_whoever_is_alone_looks_by_itself_for_a_while(self) -> None:
        """
        A round of the loop costs more than a look. Now and then one waits for company, and finds it if there is any.
        """

        async def main() -> list[int]:
            loop, looks, alone = asyncio.get_running_loop(), EventLoopLooks(Reads().at_once), []
            for _ in range(3 * (ALONE + 1)):
                alone.append(not looks.has_company())
                if not alone[-1]:
                    await looks.look(b"a", loop)
            together = [looks.look(id, loop) for id in (b"a", b"b")]
            await asyncio.gather(*together)
            return [alone.count(True), looks.has_company(), looks.has_company()]

        assert asyncio.run(main()) == [3 * ALONE, True, True]


class TestAwaited:
    """At a store whose reads are awaited."""

    def test_what_comes_meanwhile_is_in_the_next_read(self) -> None:
        """
        One at a time, whatever comes.
        """
        reads = Reads()

        async def main() -> list[PeekResult | None]:
            loop, looks = asyncio.get_running_loop(), AwaitedLooks(reads.awaited)
            first = [looks.look(id, loop) for id in (b"a", b"none")]
            while not reads.asked:
                await asyncio.sleep(0)
            second = [looks.look(id, loop) for id in (b"b", b"c")]
            reads.may_answer.set()
            found = await asyncio.gather(*first, *second)
            await looks.finish()
            return found

        assert asyncio.run(main()) == [ROW, None, ROW, ROW]
        assert reads.asked == [[b"a", b"none"], [b"b", b"c"]]

    def test_two_reads_may_be_under_way(self) -> None:
        """
        While one is answered, those who come share another; whoever comes then waits for the first that ends.
        """
        reads = Reads()

        async def main() -> list[PeekResult | None]:
            loop, looks = asyncio.get_running_loop(), AwaitedLooks(reads.awaited, in_flight=2)
            asked: list[asyncio.Future[PeekResult | None]] = []
            for reading, id in enumerate((b"a", b"b"), 1):
                asked.append(looks.look(id, loop))
                while len(reads.asked) < reading:
                    await asyncio.sleep(0)
            asked += [looks.look(id, loop) for id in (b"c", b"d")]
            await asyncio.sleep(0)
            assert len(reads.asked) == 2
            reads.may_answer.set()
            return await asyncio.gather(*asked)

        assert asyncio.run(main()) == [ROW] * 4
        assert reads.asked == [[b"a"], [b"b"], [b"c", b"d"]]

    @pytest.mark.fault("a-look-that-comes-as-another-ends-is-never-read")
    def test_whoever_looks_as_the_last_one_is_answered_is_answered_too(self) -> None:
        """
        One after the other, from the very step in which the one before was answered.
        """
        reads, found = Reads(), list[PeekResult | None]()
        reads.may_answer.set()

        async def main() -> None:
            loop, looks = asyncio.get_running_loop(), AwaitedLooks(reads.awaited)
            for _ in range(3):
                found.append(await looks.look(b"a", loop))

        with suppress(TimeoutError):
            asyncio.run(asyncio.wait_for(main(), 10))

        assert found == [ROW] * 3

    @pytest.mark.fault("a-look-that-fails-is-not-answered")
    def test_a_read_that_fails_is_no_answer(self) -> None:
        """
        The claim that follows has rules for that; and the next look is read again.
        """
        reads = Reads(OSError("the line broke"))

        async def main() -> tuple[PeekResult | None, PeekResult | None]:
            loop, looks = asyncio.get_running_loop(), AwaitedLooks(reads.awaited)
            failed = looks.look(b"a", loop)
            await looks.finish()
            assert failed.done()
            reads.failure = None
            reads.may_answer.set()
            return failed.result(), await looks.look(b"a", loop)

        assert asyncio.run(main()) == (None, ROW)

    def test_whoever_is_cancelled_takes_nobody_along(self) -> None:
        """
        Also if both have asked for the same record.
        """
        reads = Reads()

        async def main() -> PeekResult | None:
            loop, looks = asyncio.get_running_loop(), AwaitedLooks(reads.awaited)

            async def one() -> PeekResult | None:
                return await looks.look(b"a", loop)

            leaving, staying = loop.create_task(one()), loop.create_task(one())
            while not reads.asked:
                await asyncio.sleep(0)
            leaving.cancel()
            reads.may_answer.set()
            assert await asyncio.gather(leaving, return_exceptions=True) != [ROW]
            return await staying

        assert asyncio.run(main()) == ROW

    def test_the_end_of_the_loop_leaves_nobody_waiting(self) -> None:
        """
        Whoever looks while the task that reads is cancelled is answered with nothing.
        """
        reads = Reads()

        async def main() -> list[PeekResult | None]:
            loop, looks = asyncio.get_running_loop(), AwaitedLooks(reads.awaited)
            first = looks.look(b"a", loop)
            while not reads.asked:
                await asyncio.sleep(0)
            second = looks.look(b"b", loop)
            [task] = looks._tasks
            task.cancel()
            return [await first, await second]

        assert asyncio.run(main()) == [None, None]
