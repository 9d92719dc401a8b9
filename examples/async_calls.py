"""
Many tasks, one effect: the same names as in the blocking gate, awaited.

Twenty tasks ask for the same thing at the same moment. One of them runs it, the others wait and are told its answer.
Then one task is cancelled before its effect: its key is released, and the next task runs.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from onceward import AsyncGate, Operation

mails: list[str] = []
"""The effect."""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncGate(f"sqlite:///{Path(folder) / 'mails.db'}", scope="test:mails") as gate:
            template_is_ready = asyncio.Event()
            fetching = asyncio.Event()

            @gate.once(key="welcome:{user_id}")
            async def welcome(operation: Operation, user_id: str) -> str:
                fetching.set()
                await template_is_ready.wait()  # Before the effect: a cancellation here proves that nothing happened.
                with operation.effect():
                    mails.append(f"welcome, {user_id}")
                return f"mail-{len(mails)}"

            cancelled = asyncio.create_task(welcome("u-7"))
            await fetching.wait()
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
            print(f"cancelled before its effect: {len(mails)} mails")

            template_is_ready.set()
            answers = await asyncio.gather(*(welcome("u-7") for _ in range(20)))
            print(f"20 tasks were told: {set(answers)}")
    print(f"21 tasks, {len(mails)} mail")


if __name__ == "__main__":
    asyncio.run(main())
