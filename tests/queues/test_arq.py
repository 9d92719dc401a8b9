"""arq: a real worker on a real Redis; what its retries make of a gated job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("arq", reason="in make test-agents")

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Retry, Worker, func

from onceward.errors import ConfigurationError
from onceward.queues import MessageGate, MessageKind
from onceward.queues.arq import once_functions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning"),  # arq's own.
]


class Shop:
    """A worker's function and its gate."""

    def __init__(self, url: str, *, gated: bool = True, **options: Any) -> None:
        self.gate = MessageGate("memory://", scope="test:q", wait=0, **options)
        self.settings = RedisSettings.from_dsn(url)
        self.gated = gated
        self.effects: list[str] = []
        self.plan: list[Any] = []

    async def charge(self, ctx: dict[Any, Any], order_id: str) -> Any:
        """Charge somebody, and then do as planned."""
        self.effects.append(order_id)
        step = self.plan.pop(0) if self.plan else "charged"
        if isinstance(step, Exception):
            raise step
        return step

    async def run(self, *jobs: tuple[str, str], **options: Any) -> list[Any]:
        """Send jobs (id, order) one after the other, work on each until nothing is left; their results or errors."""
        pool = await create_pool(self.settings)
        functions: list[Any] = [func(self.charge, name="charge", keep_result=60)]
        if self.gated:
            functions = once_functions(self.gate, functions)
        worker = Worker(
            functions, redis_pool=pool, burst=True, poll_delay=0.01, handle_signals=False, max_burst_jobs=50, **options
        )
        results = []
        for id, order in jobs:
            await pool.delete(f"arq:result:{id}")
            job = await pool.enqueue_job("charge", order, _job_id=id)
            assert job is not None
            await worker.async_run()
            info = await job.result_info()
            results.append(None if info is None else info.result)
        await worker.close()
        if self.gated:
            await self.gate.awaiting.close()
        return results


@pytest.mark.parametrize(("gated", "charges"), [(True, 1), (False, 3)])
def test_a_retry_with_a_reason_finds_the_record(redis_broker: str, gated: bool, charges: int) -> None:
    """A job that lost its connection after the effect is given up; without a gate, it has as many as arq tries."""
    shop = Shop(redis_broker, gated=gated)
    for _ in range(3):
        retry = Retry(defer=0)
        retry.__cause__ = ConnectionError("lost")
        shop.plan.append(retry)
    asyncio.run(shop.run(("job-1", "o-1"), max_tries=3))

    assert shop.effects == ["o-1"] * charges


def test_a_job_that_is_run_again_has_its_first_result(redis_broker: str) -> None:
    """Its id is its key, in whatever worker."""
    shop = Shop(redis_broker)
    results = asyncio.run(shop.run(("job-1", "o-1"), ("job-1", "o-1")))

    assert (results, shop.effects) == (["charged", "charged"], ["o-1"])


def test_a_job_may_ask_to_be_run_again(redis_broker: str) -> None:
    """A retry without a reason is its own wish, blind or not."""
    shop = Shop(redis_broker)
    shop.plan = [Retry(defer=0), Retry(defer=0)]
    results = asyncio.run(shop.run(("job-1", "o-1")))

    assert (results, len(shop.effects)) == (["charged"], 3)


def test_a_failure_is_a_letter(redis_broker: str) -> None:
    """arq tries again only what asks for it, and drops the rest."""
    shop = Shop(redis_broker, default=MessageKind("repeatable"), payload="plain")
    shop.plan = [ValueError("no such order")]

    async def scenario() -> Any:
        results = await shop.run(("job-1", "o-1"))
        return results, shop.gate.dead.list()

    (failure,), (letter,) = asyncio.run(scenario())
    arguments = shop.gate.dead.arguments(letter)

    assert (type(failure), letter.name, arguments and arguments.args) == (ValueError, "charge", ("o-1",))


def test_a_job_that_another_worker_has_comes_again_without_being_counted(redis_broker: str) -> None:
    """A worker that allows one try waits for the other one, too."""
    shop = Shop(redis_broker)

    async def scenario() -> Any:
        held: Any = await shop.gate.awaiting.hold("charge:job-1")

        def let_go(event: Any) -> None:
            if event.type == "refused" and not ended:
                from onceward._core.flow import Returned

                ended.append(asyncio.ensure_future(held.end(Returned("by another"))))

        ended: list[Any] = []
        shop.gate.awaiting.listen(let_go)
        results = await asyncio.get_running_loop().create_task(shop.run(("job-1", "o-1"), max_tries=1))
        await asyncio.gather(*ended)
        return results

    assert (asyncio.run(scenario()), shop.effects) == (["by another"], [])


@pytest.mark.parametrize(
    ("options", "timeout", "says"),
    [({"lease": 61}, 50, "job_timeout and 10 s"), ({}, 7_200, "lease_max")],
)
def test_the_lease_fits_arqs_time_outs(options: dict[str, Any], timeout: int, says: str) -> None:
    """Or it says which of both to change, when the worker is set up."""

    async def charge(ctx: dict[Any, Any]) -> None: ...

    gate = MessageGate("memory://", scope="test:q", **options)
    with pytest.raises(ConfigurationError, match=says):
        once_functions(gate, [func(charge, timeout=timeout)])
