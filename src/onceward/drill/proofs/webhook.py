"""A webhook that is delivered three times: stored once, processed once."""

from __future__ import annotations

from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof
from onceward.messaging.inbox import Inbox, Source, WebhookEvent
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.webhooks import Secret, Stripe
from onceward.runtime.environment import REAL

DELIVERIES = 3


def _run(bench: Bench) -> Numbers:
    event_id = f"evt_{bench.random.getrandbits(64):016x}"
    secret = REAL.random(24).hex()

    def process(event: WebhookEvent) -> None:
        bench.book.happen(event.id)

    duplicates = processed = 0
    with bench.database() as url, Inbox(url, scope=bench.scope) as inbox:
        inbox.add(Source("drill", Stripe(), [secret], process))
        headers, body = signed_sample(Stripe(), Secret.plain(secret), event_id, now=REAL.wall_us() / 1e6)
        for _ in range(DELIVERIES):
            if bench.guarded:
                duplicates += inbox.receive("drill", headers, body).duplicate
                processed += inbox.drain()["done"]
            else:
                bench.book.happen(event_id)
    return {
        "operations": 1,
        "effects": bench.book.count(event_id),
        "deliveries": DELIVERIES,
        "duplicates": duplicates,
        "processed": processed,
    }


WEBHOOK = Proof(
    name="webhook",
    shows="a webhook that is delivered three times is stored once and processed once",
    without="the inbox",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("redeliveries are recognized", lambda n: n["duplicates"] == n["deliveries"] - 1 > 0),
        Claim("the event is processed once", lambda n: n["processed"] == 1),
    ),
)
