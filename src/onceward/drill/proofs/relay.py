"""A relay that is killed after a delivery that nobody wrote down: it is delivered again, under the same id."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from onceward.drill.bench import Bench, until
from onceward.drill.database import connect
from onceward.drill.drill_gate import open_gate
from onceward.drill.effect_book import EffectBook
from onceward.drill.proof import FORK, ONE_EFFECT, Claim, Numbers, Proof
from onceward.messaging.outbox.delivery.callable_endpoint import CallableEndpoint
from onceward.messaging.outbox.message import Message
from onceward.messaging.outbox.relay import Relay

LEASE_PART_SECONDS = 0.5
"""A try may take so long, and its lease is so much longer."""
_PATIENCE_SECONDS = 60.0


def step_of(url: str, endpoint: str, book: Path, scope: str, guarded: bool) -> int:
    """Deliver what is due, once; how many were tried."""
    effects = EffectBook(book)
    with closing(open_gate(url, scope)) as gate:

        def receive(message: Message) -> None:
            """The receiver: it knows the message by its id, if it has a gate."""
            effects.happen(f"delivery/{message.id}")
            order = json.loads(message.payload)["order"]
            if guarded:
                gate.run(f"message:{message.id}", lambda: effects.happen(order))
            else:
                effects.happen(order)

        endpoints = {endpoint: CallableEndpoint(receive, seconds=LEASE_PART_SECONDS * 3)}
        with closing(Relay(url, endpoints, margin=LEASE_PART_SECONDS)) as relay:
            return relay.step()


def _run(bench: Bench) -> Numbers:
    order, endpoint = bench.key("order"), "drill"
    with bench.database() as url:
        with closing(open_gate(url, bench.scope)) as gate, closing(connect(url)) as connection:
            outbox = gate.outbox(connection)
            id = outbox.add(endpoint, {"order": order}, topic="order.paid", id=f"msg_{bench.random.getrandbits(64):x}")
            connection.commit()
        task = bench.task("relay", order, endpoint=endpoint, at="relay.deliver.after") | {"url": url}
        [end] = bench.nursery.run([task])

        def redelivered() -> bool:
            return step_of(url, endpoint, bench.book.path, bench.scope, bench.guarded) > 0

        until(_PATIENCE_SECONDS, redelivered)
    return {
        "operations": 1,
        "effects": bench.book.count(order),
        "killed": int(end.was_killed),
        "deliveries": bench.book.count(f"delivery/{id}"),
    }


RELAY = Proof(
    name="relay",
    shows="a relay is killed after a delivery: the next delivers again under the same id, and there is one effect",
    without="the receiver's gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("the relay was killed", lambda n: n["killed"] == 1),
        Claim("the message was delivered twice", lambda n: n["deliveries"] == 2),
    ),
    needs=frozenset({FORK}),
)
