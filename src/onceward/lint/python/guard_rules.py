"""
OW120 to OW132 in words: gates, webhook handlers, and guards that do not guard.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule, Severity

GUARD_RULES: Final = (
    Rule(
        "OW120",
        "effect-without-guarantee",
        "a gated function with an outside effect and no declared guarantee",
        "Without a guarantee the gate must assume the worst (`blind`): a crash in the middle leaves the operation in\n"
        "doubt, and someone has to decide. If the other side honours keys, declare `keyed` and pass a key on; if you\n"
        "can look up whether the effect took place, declare `probed`. If it really is `blind`, declare that: then it\n"
        "was a choice.",
        """\
import httpx

from onceward import Gate

gate = Gate("sqlite:///shop.db", scope="live:shop")


@gate.once(key="charge:{order_id}")
def charge(order_id: str, cents: int) -> int:
    return httpx.post("https://api.example.com/charges", json={"cents": cents}).status_code
""",
        """\
import httpx

from onceward import Gate, Operation

gate = Gate("sqlite:///shop.db", scope="live:shop")


@gate.once(key="charge:{order_id}", guarantee="keyed")
def charge(operation: Operation, order_id: str, cents: int) -> int:
    headers = {"Idempotency-Key": operation.downstream_key()}
    return httpx.post("https://api.example.com/charges", json={"cents": cents}, headers=headers).status_code
""",
    ),
    Rule(
        "OW121",
        "generator-under-gate",
        "a generator under a gate or a retry policy",
        "Calling a generator runs nothing: its work happens when it is iterated, after the gate has stored its\n"
        "result. The gate refuses a generator at run time; this rule finds it earlier. Use `gate.hold` for a stream,\n"
        "or return a list.",
        """\
from onceward import Gate

gate = Gate("sqlite:///shop.db", scope="live:shop")


@gate.once(key="export:{run_id}")
def export(run_id: str):
    for row in range(3):
        yield row
""",
        """\
from onceward import Gate

gate = Gate("sqlite:///shop.db", scope="live:shop")


@gate.once(key="export:{run_id}")
def export(run_id: str) -> list[int]:
    return list(range(3))
""",
    ),
    Rule(
        "OW122",
        "window-on-money",
        "a time window in front of a payment",
        "A window forgets: once it has passed, the same request runs again, by design. That is right for a search\n"
        "box and wrong for money. Use a key.",
        """\
from onceward import Gate

gate = Gate("sqlite:///shop.db", scope="live:shop")
recent = gate.window("charge", seconds=300)
""",
        """\
from onceward import Gate

gate = Gate("sqlite:///shop.db", scope="live:shop")
recent = gate.window("suggestions", seconds=300)
""",
    ),
    Rule(
        "OW130",
        "webhook-processes-first",
        "a webhook handler that processes an event before it is stored",
        "If the work takes longer than the sender waits, or fails half-way, the event is delivered again and the\n"
        "first half is done twice. Verify the signature, store the event by its id, respond with 200, and process it\n"
        "later.",
        """\
from flask import Flask, request

from shop import fulfill_order

app = Flask(__name__)


@app.post("/webhooks/stripe")
def stripe_webhook():
    event = request.get_json()
    fulfill_order(event["data"]["object"]["id"])
    return {"received": True}
""",
        """\
from flask import Flask, request

from shop import inbox

app = Flask(__name__)


@app.post("/webhooks/stripe")
def stripe_webhook():
    event = request.get_json()
    is_new = inbox.add(event["id"], event)
    return {"received": True, "duplicate": not is_new}
""",
    ),
    Rule(
        "OW131",
        "check-then-set-guard",
        "a guard that checks first, then acts, then records",
        "Two callers that check at the same time both find nothing, and both act; and after a crash between the\n"
        "action and the record, nobody knows that it was done. Claim the key first, in one step that only one caller\n"
        "can win: a unique insert, `SET ... NX`, or a gate. Reported only where the key names something that may be\n"
        "repeated (an event, a message, a request, an order) and something acts in between.",
        """\
class IdempotentClient:
    def __init__(self, cache):
        self.cache = cache

    def execute(self, operation, idempotency_key):
        cached = self.cache.get(idempotency_key)
        if cached:
            return cached
        result = operation()
        self.cache.set(idempotency_key, result, ttl=86400)
        return result
""",
        """\
from onceward import Gate


class IdempotentClient:
    def __init__(self, gate: Gate):
        self.gate = gate

    def execute(self, operation, idempotency_key):
        return self.gate.run(idempotency_key, operation)
""",
    ),
    Rule(
        "OW132",
        "derive-per-event",
        "a balance that is derived after every event",
        "Deriving replays the verified deltas, so it costs more with each delta. Derive when someone asks, at a\n"
        "scheduled reconciliation, or before a receipt or an invoice.",
        """\
def ingest(ledger, events):
    for event in events:
        ledger.emit(event.customer, -1, "call", reference_id=event.id)
        print(ledger.derive(event.customer))
""",
        """\
def ingest(ledger, events):
    for event in events:
        ledger.emit(event.customer, -1, "call", reference_id=event.id)
""",
        Severity.WARNING,
    ),
)
