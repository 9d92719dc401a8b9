"""RQ: real jobs in a worker of this process, on a real Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("rq", reason="in make test-agents")

from redis import Redis
from rq import Queue, Retry, SimpleWorker
from rq.job import Job
from rq.registry import StartedJobRegistry
from rq.timeouts import TimerDeathPenalty

from onceward.errors import ConfigurationError, KeyReused
from onceward.queues import MessageGate, MessageKind
from onceward.queues.rq import OncewardJob

pytestmark = pytest.mark.slow


class Effects:
    """What the jobs did, and what they are to do."""

    seen: ClassVar[list[Any]] = []
    plan: ClassVar[list[Any]] = []


def charge(order_id: str) -> Any:
    """Charge somebody, and then do as planned."""
    Effects.seen.append(order_id)
    step = Effects.plan.pop(0) if Effects.plan else "charged"
    if isinstance(step, Exception):
        raise step
    return step


NAME = f"{__name__}.charge"


class Shop:
    """A queue and its gate."""

    def __init__(self, url: str, *, gated: bool = True, **options: Any) -> None:
        Effects.seen, Effects.plan = [], []
        self.gate = MessageGate("memory://", scope="test:q", wait=0, **options)
        self.job_class: Any = type("ShopJob", (OncewardJob,), {"gate": self.gate}) if gated else Job
        self.redis = Redis.from_url(url)
        self.queue = Queue(connection=self.redis, job_class=self.job_class)

    def send(self, *args: Any, **options: Any) -> Any:
        """Put a job into the queue."""
        return self.queue.enqueue(charge, *(args or ("o-1",)), **{"retry": Retry(max=3), **options})

    def work(self) -> None:
        """Work until nothing is left."""
        worker = SimpleWorker([self.queue], connection=self.redis, job_class=self.job_class)
        worker.death_penalty_class = TimerDeathPenalty
        worker.work(burst=True)


@pytest.fixture
def shop(redis_broker: str) -> Iterator[Shop]:
    """A shop with a gate."""
    yield Shop(redis_broker)


@pytest.mark.parametrize(("gated", "charges"), [(True, 1), (False, 4)])
def test_retries_find_the_record(redis_broker: str, gated: bool, charges: int) -> None:
    """A job that lost its connection after the effect is given up; without a gate, it has four effects."""
    shop = Shop(redis_broker, gated=gated)
    Effects.plan = [ConnectionError("lost") for _ in range(4)]
    job = shop.send()
    shop.work()

    assert (Effects.seen, job.get_status()) == (["o-1"] * charges, "failed")
    assert [one.may_have_happened for one in shop.gate.dead.list()] == [True] * gated


def test_a_job_that_is_run_again_has_its_first_result(shop: Shop) -> None:
    """Its id is its key."""
    results = []
    for _ in range(2):
        job = shop.send(job_id="job-1")
        shop.work()
        results.append(job.return_value())

    assert (results, Effects.seen) == (["charged", "charged"], ["o-1"])


def test_an_abandoned_job_is_answered_from_its_record(shop: Shop) -> None:
    """A worker that is gone altogether: RQ finds its job later, and enqueues it again."""
    job = shop.send(job_id="job-1")
    shop.work()
    shop.redis.delete("rq:finished:default")
    job.set_status("started")
    shop.redis.zadd("rq:wip:default", {"job-1:execution-1": time.time() - 1})
    StartedJobRegistry(queue=shop.queue, job_class=shop.job_class).cleanup()
    waiting = shop.queue.count
    shop.work()

    assert (waiting, job.get_status(), Effects.seen) == (1, "finished", ["o-1"])


def test_keyed_work_is_retried_until_rq_gives_up(redis_broker: str) -> None:
    """Then there is a letter of it, in the gate's store."""
    shop = Shop(redis_broker, default=MessageKind("keyed"))
    Effects.plan = [ConnectionError("lost") for _ in range(4)]
    shop.send(retry=Retry(max=2))
    shop.work()
    (letter,) = shop.gate.dead.list()

    assert (len(Effects.seen), letter.name) == (3, NAME)


def test_a_function_may_ask_to_be_run_again(shop: Shop) -> None:
    """A returned Retry is no result: the function is run again, as often as it says."""
    Effects.plan = [Retry(max=5), Retry(max=5)]
    job = shop.send()
    shop.work()

    assert (len(Effects.seen), job.get_status(), job.return_value()) == (3, "finished", "charged")


def test_a_message_that_another_worker_has_comes_again(redis_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the other one, however few retries it has, and is answered from the other's record."""
    shop = Shop(redis_broker)
    pauses: list[float] = []
    monkeypatch.setattr(shop.gate, "pause", pauses.append)
    job = shop.send(job_id="job-1", retry=None)
    shop.gate.blocking.run(f"{NAME}:job-1", lambda: _worked_once(shop))
    shop.work()

    assert (len(pauses), job.get_status(), job.return_value(), Effects.seen) == (1, "finished", "by another", [])


def _worked_once(shop: Shop) -> str:
    SimpleWorker([shop.queue], connection=shop.redis, job_class=shop.job_class).work(burst=True, max_jobs=1)
    return "by another"


def test_two_jobs_for_one_order_have_one_effect(redis_broker: str) -> None:
    """A key from the arguments, or one in the job's meta; the same key for another order is refused."""
    shop = Shop(redis_broker, messages={NAME: MessageKind(key="charge:{order_id}")})
    shop.send("o-1")
    shop.send("o-1")
    shop.work()
    other = Shop(redis_broker)
    Effects.seen = ["o-1"]
    jobs = [other.send(order, meta={"onceward-key": "k-1"}) for order in ("o-2", "o-2", "o-3")]
    other.work()
    (letter,) = other.gate.dead.list()

    assert Effects.seen == ["o-1", "o-2"]
    assert [one.get_status() for one in jobs] == ["finished", "finished", "failed"]
    assert letter.error == f"onceward.{KeyReused.__name__}"


def test_a_job_without_retries_is_warned_about(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """RQ would not run it again after a kill."""
    shop.send(retry=None)
    shop.work()

    assert "enqueued without retry" in caplog.text


def test_what_is_missing_is_said(shop: Shop) -> None:
    """A job class without its gate; a time-out that is longer than a claim can hold."""
    with pytest.raises(ConfigurationError, match="gate = MessageGate"):
        type("NoGate", (OncewardJob,), {})
    job = shop.send(job_timeout=7_200)
    shop.work()

    assert "lease_max" in job.latest_result().exc_string
    assert Effects.seen == []
