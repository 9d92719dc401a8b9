"""An arq worker."""

import asyncio
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from queue_kit import NAME, ORDER, Kit, main

from onceward.queues.arq import once_functions

kit = Kit()
gate = kit.gate()
settings = RedisSettings.from_dsn(kit.broker)


async def charge(ctx: dict[Any, Any], order_id: str) -> dict[str, str]:
    """Charge somebody."""
    return kit.charge(order_id)


async def answered(ctx: dict[Any, Any]) -> None:
    """The coroutine has returned, and arq has not ended the job."""
    kit.die_at("answer")


async def _send() -> None:
    pool = await create_pool(settings)
    await pool.enqueue_job(NAME, ORDER, _job_id="job-1")
    await pool.aclose()


def send() -> None:
    """Put the job into the queue."""
    asyncio.run(_send())


def work() -> None:
    """Work until somebody ends this."""
    functions: list[Any] = [func(charge, name=NAME)]
    if gate is not None:
        functions = once_functions(gate, functions)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    Worker(functions, redis_settings=settings, on_job_end=answered, poll_delay=0.05).run()


if __name__ == "__main__":
    main(send, work)
