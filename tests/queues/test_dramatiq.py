"""Dramatiq: a real worker on its broker in memory; what its retries and pipelines make of a gated actor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

dramatiq = pytest.importorskip("dramatiq", reason="in make test-agents")

from dramatiq.brokers.redis import RedisBroker  # noqa: E402
from dramatiq.brokers.stub import StubBroker  # noqa: E402
from dramatiq.errors import Retry  # noqa: E402

from onceward.errors import ConfigurationError  # noqa: E402
from onceward.queues import MessageGate, MessageKind  # noqa: E402
from onceward.queues.dramatiq import GivenUpMessage, OnceMiddleware  # noqa: E402

pytestmark = pytest.mark.slow

PATIENCE = 60_000


class Shop:
    """A broker, its gate, and what its actors did."""

    def __init__(self, *, gated: bool = True, **options: Any) -> None:
        self.gate = MessageGate("memory://", scope="test:q", wait=0, **options)
        self.broker = StubBroker()
        if gated:
            self.broker.add_middleware(OnceMiddleware(self.gate))
        self.effects: list[Any] = []
        self._workers: list[Any] = []

    def actor(self, fn: Any, **options: Any) -> Any:
        """Declare an actor that is retried at once."""
        return dramatiq.actor(fn, broker=self.broker, min_backoff=1, max_backoff=1, **options)

    def work(self, *, fail_fast: bool = False) -> None:
        """Work until everything is done."""
        if not self._workers:
            self._workers.append(dramatiq.Worker(self.broker, worker_timeout=50, worker_threads=1))
            self._workers[0].start()
        self.broker.join("default", timeout=PATIENCE, fail_fast=fail_fast)
        self._workers[0].join()

    def close(self) -> None:
        """The end."""
        for worker in self._workers:
            worker.stop()
        self.broker.close()


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A shop with a gate; without, if the test says so."""
    made = Shop(gated=getattr(request, "param", True))
    yield made
    made.close()


@pytest.mark.parametrize(("shop", "charges"), [(True, 1), (False, 4)], indirect=["shop"])
def test_retries_find_the_record(shop: Shop, charges: int) -> None:
    """An actor that lost its connection after the effect is given up; without a gate, it has four effects."""

    def charge(order_id: str) -> None:
        shop.effects.append(order_id)
        raise ConnectionError("lost")

    shop.actor(charge, max_retries=3).send("o-1")
    shop.work()

    assert shop.effects == ["o-1"] * charges
    assert [one.may_have_happened for one in shop.gate.dead.list()] == ([True] if charges == 1 else [])
    assert len(shop.broker.dead_letters) == 1


def test_one_message_delivered_twice_has_one_effect(shop: Shop) -> None:
    """Its id is its key."""
    charge = shop.actor(lambda: shop.effects.append(1), actor_name="charge")
    message = charge.message()
    for _ in range(2):
        shop.broker.enqueue(message)
    shop.work(fail_fast=True)

    assert shop.effects == [1]


def test_two_messages_for_one_order_have_one_effect(shop: Shop) -> None:
    """A key from its arguments; or one that the sender gives it."""
    kind = MessageKind(key="charge:{order_id}")
    charge = shop.actor(lambda order_id: shop.effects.append(order_id), actor_name="charge", onceward=kind)
    notify = shop.actor(lambda: shop.effects.append("notified"), actor_name="notify")
    for _ in range(2):
        charge.send("o-1")
        notify.send_with_options(onceward_key="notify-1")
    shop.work(fail_fast=True)

    assert sorted(shop.effects) == ["notified", "o-1"]


def test_keyed_work_is_retried_until_dramatiq_gives_up(shop: Shop) -> None:
    """Then there is a letter of it, in the gate's store."""

    def charge() -> None:
        shop.effects.append(1)
        raise ConnectionError("lost")

    shop.actor(charge, max_retries=2, onceward=MessageKind("keyed")).send()
    shop.work()
    (letter,) = shop.gate.dead.list()

    assert (len(shop.effects), letter.name, letter.may_have_happened) == (3, "charge", True)


def test_an_actor_may_ask_to_be_run_again(shop: Shop) -> None:
    """A retry without a reason is its own wish, blind or not."""

    def poll() -> None:
        shop.effects.append(1)
        if len(shop.effects) < 3:
            raise Retry("not yet", delay=1)

    shop.actor(poll).send()
    shop.work(fail_fast=True)

    assert (len(shop.effects), shop.gate.dead.list()) == (3, ())


def test_a_message_that_another_worker_has_comes_again_without_being_counted(shop: Shop) -> None:
    """An actor that allows no retry at all waits for the other one, too."""
    charge = shop.actor(lambda: shop.effects.append("charged"), actor_name="charge", max_retries=0)
    message = charge.message()
    held: Any = shop.gate.blocking.hold(f"charge:{message.message_id}")
    refused: list[Any] = []

    def let_go(event: Any) -> None:
        if event.type == "refused" and not refused:
            refused.append(event)
            _end(held)

    shop.gate.blocking.listen(let_go)
    shop.broker.enqueue(message)
    shop.work(fail_fast=True)

    assert (len(refused), shop.effects) == (1, ["charged"])


def _end(held: Any) -> None:
    from onceward._core.flow import Raised
    from onceward.errors import NothingHappened

    with pytest.raises(NothingHappened):
        held.end(Raised(NothingHappened()))


def test_what_is_given_up_does_not_go_down_its_pipeline(shop: Shop) -> None:
    """The next actor must not be given nothing for a result."""

    def charge() -> None:
        raise ConnectionError("lost")

    first = shop.actor(charge)
    second = shop.actor(lambda *_: shop.effects.append("second"), actor_name="second")
    dramatiq.pipeline([first.message(), second.message()], broker=shop.broker).run()
    shop.work()

    assert shop.effects == []


def test_an_actor_that_is_called_as_a_function_is_not_gated(shop: Shop) -> None:
    """Also inside another one: nobody delivers that again."""
    inner = shop.actor(lambda: shop.effects.append("inner"), actor_name="inner")
    outer = shop.actor(lambda: (inner(), inner()), actor_name="outer")
    inner()
    outer.send()
    shop.work(fail_fast=True)

    assert shop.effects == ["inner"] * 3


@pytest.mark.parametrize(
    ("options", "actor", "says"),
    [({"lease": 61}, {}, "heartbeat_timeout"), ({}, {"time_limit": 7_200_000}, "time_limit")],
)
def test_the_lease_fits_dramatiqs_time_outs(options: dict[str, Any], actor: dict[str, Any], says: str) -> None:
    """Or it says which of both to change, when the actor is declared."""
    broker = RedisBroker(url="redis://127.0.0.1:9/0")
    broker.add_middleware(OnceMiddleware(MessageGate("memory://", scope="test:q", **options)))

    with pytest.raises(ConfigurationError, match=says):  # Dramatiq logs most errors of a middleware, and goes on.
        dramatiq.actor(lambda: None, actor_name="charge", broker=broker, **actor)


def test_what_is_given_up_is_an_error_of_its_own() -> None:
    """One that frameworks do not retry."""
    assert issubclass(GivenUpMessage, RuntimeError)
