"""A Celery task behind a gate: is a parcel sent once per message? And the same task without the gate."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("celery", reason="Celery is in make test-agents")

from celery import Celery

from onceward.queues import MessageGate
from onceward.queues.celery import once_task
from onceward.testing.assert_once import AssertOnce
from onceward.testing.effects import Effects
from onceward.testing.once_story import DoubledEffect
from onceward.testing.sandbox import Sandbox


def shop(effects: Effects, **settings: Any) -> Any:
    """The task; `effects` stands for the post office. Your program gives its broker here; a test has none."""
    app = Celery("shop", set_as_current=False, **settings)
    app.conf.task_always_eager = True

    @app.task(name="shop.send_parcel")
    def send_parcel(order_id: str) -> str:
        effects.record("parcel")
        return f"sent {order_id}"

    return send_parcel


def deliver(task: Any) -> Any:
    """One message, which a broker may deliver again: the same id, the same arguments."""
    return task.apply(("o-17",), task_id="message-1", throw=True).get()


def test_a_parcel_is_sent_once(assert_once: AssertOnce, onceward_sandbox: Sandbox, onceward_effects: Effects) -> None:
    gate = MessageGate(onceward_sandbox.url, scope="test:shop", environment=onceward_sandbox.clock)

    report = assert_once(deliver, shop(onceward_effects, task_cls=once_task(gate)))
    assert "settle.before" in report.points


def test_without_the_gate_it_is_sent_twice(assert_once: AssertOnce, onceward_effects: Effects) -> None:
    with pytest.raises(DoubledEffect, match="2 x parcel, where one run makes 1"):
        assert_once(deliver, shop(onceward_effects))
