"""Celery: a real worker on a broker in memory; what its retries, results and settings make of a gated task."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

celery = pytest.importorskip("celery", reason="in make test-agents")

from celery.contrib.testing.worker import start_worker  # noqa: E402
from celery.exceptions import Ignore, Reject  # noqa: E402

from onceward import Gate  # noqa: E402
from onceward.errors import ConfigurationError, InDoubt, NotReplayable  # noqa: E402
from onceward.queues import MessageGate, MessageKind  # noqa: E402
from onceward.queues.celery import once_task  # noqa: E402

pytestmark = pytest.mark.slow

PATIENCE = 60
LATE: dict[str, Any] = {"task_acks_late": True, "task_reject_on_worker_lost": True}


class Shop:
    """An app, its gate, and what its tasks did."""

    def __init__(self, *, gated: bool = True, conf: dict[str, Any] | None = None, **options: Any) -> None:
        self.gate = MessageGate("memory://", scope="test:q", wait=0, **options)
        base = {"task_cls": once_task(self.gate)} if gated else {}
        self.app = celery.Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False, **base)
        own = {"task_default_queue": f"shop-{os.urandom(6).hex()}", "worker_hijack_root_logger": False}
        self.app.conf.update({**LATE, **own, **(conf or {})})
        self.effects: list[Any] = []

    def task(self, fn: Callable[..., Any], **options: Any) -> Any:
        """Declare a task."""
        fn.__name__ = options.setdefault("name", fn.__name__)  # Celery writes a function of this name.
        return self.app.task(shared=False, **options)(fn)

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A worker in a thread."""
        with start_worker(self.app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE):
            yield


def lost(shop: Shop) -> Callable[..., Any]:
    """Work that has its effect and loses its connection."""

    def charge(order_id: str) -> None:
        shop.effects.append(order_id)
        raise ConnectionError("lost")

    return charge


AUTORETRY: dict[str, Any] = {"autoretry_for": (Exception,), "retry_kwargs": {"countdown": 0, "max_retries": 3}}


class TestRetries:
    """Retries of Celery's own."""

    @pytest.mark.parametrize(("gated", "charges"), [(True, 1), (False, 4)])
    def test_autoretry_finds_the_record(self, gated: bool, charges: int) -> None:
        """Celery makes a Retry of the error; what counts is why. Without a gate, somebody is charged four times."""
        shop = Shop(gated=gated)
        charge = self.declared(shop, lost(shop))
        with shop.worker():
            result = charge.delay(order_id="o-1")
            with pytest.raises(Exception) as failure:
                result.get(timeout=PATIENCE)

        assert shop.effects == ["o-1"] * charges
        assert type(failure.value).__name__ == ("InDoubt" if gated else "ConnectionError")
        assert [one.may_have_happened for one in shop.gate.dead.list()] == [True] * gated

    def declared(self, shop: Shop, fn: Callable[..., Any], **options: Any) -> Any:
        """With automatic retries."""
        return shop.task(fn, **AUTORETRY, **options)

    def test_a_refusal_for_good_is_not_retried(self) -> None:
        """A gate inside the task says that something is in doubt: asking again does not help."""
        shop = Shop()
        tries: list[int] = []

        def charge() -> None:
            tries.append(1)
            raise InDoubt

        task = self.declared(shop, charge, onceward=MessageKind("repeatable"))
        with shop.worker():
            result = task.delay()
            with pytest.raises(Exception, match="may have happened"):
                result.get(timeout=PATIENCE)

        assert len(tries) == 1

    def test_keyed_work_is_retried(self) -> None:
        """Its error is Celery's to retry, and it ends well."""
        shop = Shop()

        def charge(order_id: str) -> str:
            shop.effects.append(order_id)
            if len(shop.effects) < 3:
                raise ConnectionError("lost")
            return "charged"

        task = self.declared(shop, charge, onceward=MessageKind("keyed"))
        with shop.worker():
            answer = task.delay(order_id="o-1").get(timeout=PATIENCE)

        assert (answer, len(shop.effects), shop.gate.dead.list()) == ("charged", 3, ())

    def test_a_task_may_ask_to_be_run_again(self) -> None:
        """A retry without a reason is its own wish, blind or not."""
        shop = Shop()

        def poll(self: Any) -> str:
            shop.effects.append(1)
            if len(shop.effects) < 3:
                raise self.retry(countdown=0)
            return "ready"

        task = shop.task(poll, bind=True)
        with shop.worker():
            answer = task.delay().get(timeout=PATIENCE)

        assert (answer, len(shop.effects)) == ("ready", 3)

    def test_a_failure_without_a_retry_leaves_a_letter(self) -> None:
        """Celery would drop it. Its error is the task's own."""
        shop = Shop(payload="plain")
        charge = shop.task(lost(shop), onceward=MessageKind("repeatable"))
        with shop.worker(), pytest.raises(ConnectionError, match="lost"):
            charge.delay(order_id="o-1").get(timeout=PATIENCE)
        (letter,) = shop.gate.dead.list()
        arguments = shop.gate.dead.arguments(letter)

        assert (letter.name, arguments and arguments.kwargs) == ("charge", {"order_id": "o-1"})


class TestDeliveries:
    """What is delivered again, or twice."""

    def test_one_message_sent_twice_has_one_effect_and_one_result(self) -> None:
        """The task's id is its key; the second result is the first one's."""
        shop = Shop()
        charge = shop.task(lambda order_id: shop.effects.append(order_id) or len(shop.effects), name="charge")
        with shop.worker():
            answers = [charge.apply_async(("o-1",), task_id="t-1").get(timeout=PATIENCE) for _ in range(2)]

        assert (answers, shop.effects) == ([1, 1], ["o-1"])

    @pytest.mark.parametrize("how", ["header", "template"])
    def test_two_messages_for_one_order_have_one_effect(self, how: str) -> None:
        """A key from its arguments, however they are given, or one that the sender sends along."""
        kind = MessageKind(key="charge:{order_id}") if how == "template" else None
        headers = {"onceward-key": "order-1"} if how == "header" else {}
        shop = Shop()
        charge = shop.task(lambda order_id: shop.effects.append(order_id), name="charge", onceward=kind)
        with shop.worker():
            charge.apply_async(("o-1",), headers=headers).get(timeout=PATIENCE)
            charge.apply_async((), {"order_id": "o-1"}, headers=headers).get(timeout=PATIENCE)

        assert shop.effects == ["o-1"]

    def test_a_message_that_another_worker_has_comes_again_without_being_counted(self) -> None:
        """However often: a task that allows no retry at all waits for the other one, too."""
        shop = Shop()
        charge = shop.task(lambda: shop.effects.append("charged") or "charged", name="charge", max_retries=0)
        free, tried = threading.Event(), threading.Event()
        other = threading.Thread(target=lambda: _hold(shop.gate.blocking, "charge:waits-1", free, tried))
        other.start()
        assert tried.wait(PATIENCE)
        shop.gate.blocking.listen(lambda event: free.set() if event.type == "refused" else None)
        with shop.worker():
            answer = charge.apply_async(task_id="waits-1").get(timeout=PATIENCE)
        other.join()

        assert (answer, shop.effects) == ("by another", [])

    def test_a_result_that_was_not_kept_is_an_error_and_no_none(self) -> None:
        """A chain must not go on with it."""
        shop = Shop(conf={"task_always_eager": True})
        charge = shop.task(lambda: object(), name="charge")
        charge.apply(task_id="t-1")

        assert type(charge.apply(task_id="t-1").result) is NotReplayable

    def test_chains_and_groups_go_on(self) -> None:
        """Each task of them is a message of its own."""
        shop = Shop()
        add = shop.task(lambda a, b: shop.effects.append((a, b)) or a + b, name="add")
        total = shop.task(lambda numbers: sum(numbers), name="total")
        with shop.worker():
            chained = (add.s(1, 2) | add.s(3)).apply_async().get(timeout=PATIENCE)
            grouped = celery.chord([add.s(1, 1), add.s(1, 1)])(total.s()).get(timeout=PATIENCE)

        assert (chained, grouped, len(shop.effects)) == (6, 4, 4)

    @pytest.mark.parametrize("raised", [Ignore(), Reject("no", requeue=False)])
    def test_celerys_own_words_pass_through(self, raised: Exception) -> None:
        """They are no failures: the key is free again, and there is no letter."""
        shop = Shop(conf={"task_always_eager": True})

        def charge() -> None:
            raise raised

        shop.task(charge).apply(task_id="t-1")
        record = shop.gate.blocking.records.get("charge:t-1")

        assert (record and record.state, shop.gate.dead.list()) == ("released", ())

    def test_an_eager_task_is_gated_and_a_plain_call_is_not(self) -> None:
        """Nobody delivers a function call again."""
        shop = Shop(conf={"task_always_eager": True})
        charge = shop.task(lambda: shop.effects.append(1), name="charge")
        charge.apply(task_id="t-1")
        charge.apply(task_id="t-1")
        eager = len(shop.effects)
        charge()

        assert (eager, len(shop.effects)) == (1, 2)


def _hold(gate: Gate, key: str, free: threading.Event, held: threading.Event) -> None:
    """Be another worker, until it is enough."""

    def work() -> str:
        held.set()
        free.wait(PATIENCE)
        return "by another"

    gate.run(key, work)


class TestSetUp:
    """What is missing is said when the worker starts."""

    @pytest.mark.parametrize("missing", ["task_acks_late", "task_reject_on_worker_lost"])
    def test_a_task_that_is_acknowledged_early_is_refused(self, missing: str) -> None:
        """A killed worker would lose it."""
        shop = Shop(conf={missing: False})
        shop.task(lambda: None, name="charge")

        with pytest.raises(ConfigurationError, match="task_acks_late=True"):
            shop.app.finalize()

    def test_read_only_tasks_may_be_acknowledged_early(self) -> None:
        """They are not gated; nor are Celery's own."""
        shop = Shop(conf={"task_acks_late": False})
        shop.task(lambda: None, name="report", onceward=MessageKind("read-only"))

        assert "report" in shop.app.tasks

    @pytest.mark.parametrize(
        ("conf", "options", "says"),
        [
            ({"broker_transport_options": {"visibility_timeout": 30}}, {}, "visibility_timeout"),
            ({"broker_url": "redis://127.0.0.1"}, {"lease": 3_601, "lease_max": 7_200}, "visibility_timeout"),
            ({"task_time_limit": 7_200}, {}, "task_time_limit"),
        ],
    )
    def test_the_lease_fits_celerys_time_outs(self, conf: dict[str, Any], options: dict[str, Any], says: str) -> None:
        """Or it says which of both to change."""
        shop = Shop(conf=conf, **options)
        shop.task(lambda: None, name="charge")

        with pytest.raises(ConfigurationError, match=says):
            shop.app.finalize()
