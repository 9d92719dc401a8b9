"""The balance ledger over a socket: names, statuses, headers and bytes, as a stranger sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from service_support import Heard, Served

BASE = "/api/v1/balance"


def post(served: Served, verb: str, document: Any, *, key: str | None = None, **more: Any) -> Heard:
    """One call of the ledger."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return served.call("POST", f"{BASE}/{verb}", document, headers=headers, **more)


def delta(customer: str, delta: Any = -1, **more: Any) -> dict[str, Any]:
    """A delta as the third document writes it."""
    return {"customerId": customer, "delta": delta, "reason": "api call", **more}


@pytest.mark.requirement("C06", "C10", "C12")
def test_a_retry_has_the_first_answer_byte_for_byte(served: Served) -> None:
    """
    Status and body are equal; only a header tells the replay.
    """
    body = delta("cus_a", "-0.1", metadata={"model": "m", "share": 0.25})
    first, again = post(served, "delta", body, key="a-1"), post(served, "delta", body, key="a-1")

    assert (200, 200, first.body) == (first.status, again.status, again.body)
    assert tuple(one.headers.get("idempotency-replayed") for one in (first, again)) == (None, "true")
    assert tuple(first.document[name] for name in ("delta", "status", "metadata")) == (
        "-0.1",
        "verified",
        {"model": "m", "share": 0.25},
    )
    assert first.body == served.call("GET", f"{BASE}/delta/{first.document['id']}").body


@pytest.mark.requirement("C13")
def test_a_key_with_one_digit_changed_is_a_409(served: Served) -> None:
    """
    The profile's status, a stable code, and what to do next.
    """
    post(served, "delta", delta("cus_b", -1), key="b-1")
    refused = post(served, "delta", delta("cus_b", -2), key="b-1")

    assert (refused.status, refused.code, refused.document["retry"]) == (409, "key_reused", "new-key")
    assert refused.headers["content-type"] == "application/problem+json"
    assert served.call("GET", f"{BASE}/derive/cus_b").document["balance"] == "-1"


@pytest.mark.requirement("C24")
def test_a_reference_alone_is_enough_and_says_duplicate(served: Served) -> None:
    """
    Twice without a header: one delta, the second marked; with another amount a 409.
    """
    first, again = (post(served, "delta", delta("cus_c", referenceId="c-1")) for _ in range(2))
    refused = post(served, "delta", delta("cus_c", 5, referenceId="c-1"))

    assert {**first.document, "duplicate": True} == again.document
    assert (refused.status, refused.code) == (409, "reference_reused")
    assert served.call("GET", f"{BASE}/derive/cus_c").document["balance"] == "-1"


@pytest.mark.parametrize("raw", ["0.1", "-0.3000000000", '"0.1"', "1e-9", "123456789.123456789"])
@pytest.mark.requirement("C17")
def test_numbers_are_taken_by_their_digits(served: Served, raw: str) -> None:
    """
    What comes back is what was sent, as a text without needless zeros; no float was between.
    """
    key = f"digits{raw.strip(chr(34))}"
    text = json.dumps(delta("cus_d", 7)).replace("7", raw, 1)
    answer = served.call("POST", f"{BASE}/delta", raw=text.encode(), headers={"Idempotency-Key": key})
    wanted = {"-0.3000000000": "-0.3", '"0.1"': "0.1", "1e-9": "0.000000001"}.get(raw, raw)

    assert (answer.status, answer.document["delta"]) == (200, wanted)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"customerId": "c", "delta": NaN, "reason": "r"}',
        b'{"customerId": "c", "delta": 1e999999999, "reason": "r"}',
        b'{"customerId": "c", "delta": 0, "reason": "r"}',
        b'{"customerId": "c", "delta": 1000000001, "reason": "r"}',
        b'{"customerId": "c", "delta": 0.0000000001, "reason": "r"}',
        b'{"customerId": "c", "delta": true, "reason": "r"}',
        b'{"customerId": "c", "delta": null, "reason": "r"}',
        b'{"customerId": "c", "delta": 1, "delta": 2, "reason": "r"}',
        b'{"customerId": "c", "delta": 1}',
        b'{"customerId": "c d", "delta": 1, "reason": "r"}',
        b'{"customerId": "c", "delta": 1, "reason": "\\u0000"}',
        b'{"customerId": "c", "delta": 1, "reason": "\\ud800"}',
        b'{"customerId": "c", "delta": 1, "reason": "r", "metadata": {"x": 1e999}}',
        b'{"customerId": "c", "delta": 1, "reason": "r", "metadata": []}',
        b'{"customerId": "c", "delta": 1, "reason": "r", "amount": 1}',
        b'{"customerId": "c", "delta": 1, "reason": "r", "referenceId": "has blank"}',
        b'{"customerId": "c", "delta": 1, "reason": "r", "referenceId": "live:of-another-environment"}',
        b'{"customerId": "c", "delta": 1, "reason": "r", "period": "2026-1"}',
    ],
)
def test_what_is_no_delta_is_a_400_that_says_why(served: Served, raw: bytes) -> None:
    """
    Nothing is booked, and the key is free for what was meant.
    """
    refused = served.call("POST", f"{BASE}/delta", raw=raw, headers={"Idempotency-Key": "e-1"})

    assert (refused.status, refused.headers["content-type"]) == (400, "application/problem+json")
    assert refused.code in ("request_invalid", "key_invalid")
    assert served.call("GET", f"{BASE}/derive/c").status == 404


@pytest.mark.requirement("E05")
def test_a_delta_without_a_name_is_a_400(served: Served) -> None:
    """
    The service makes no key up.
    """
    assert ((heard := post(served, "delta", delta("cus_e"))).status, heard.code) == (400, "key_missing")


@pytest.mark.requirement("C07", "C08", "C45", "C46", "C58")
def test_a_batch_a_checkpoint_a_balance_a_receipt(served: Served) -> None:
    """
    The whole way, with every step sent twice.
    """
    batch = {"deltas": [delta("cus_f", "0.1", referenceId=f"f-{n}", period="2020-01") for n in range(100)]}
    first, again = (post(served, "delta/batch", batch, key="f-batch") for _ in range(2))
    assert (200, 100, first.body) == (first.status, first.document["booked"], again.body)
    assert post(served, "delta/batch", {"deltas": batch["deltas"] * 2}, key="f-more").status == 400

    closing = {"customerId": "cus_f", "period": "2020-01"}
    closed = [post(served, "checkpoint", closing, key=key).document for key in ("f-1", "f-1", "f-2")]
    assert (closed[0]["balance"], len({one["id"] for one in closed})) == ("10", 1)
    assert [one["duplicate"] for one in closed] == [False, False, True]
    late = post(served, "delta", delta("cus_f", period="2020-01"), key="f-late")
    assert (late.status, late.code) == (409, "period_closed")

    running = post(served, "delta", delta("cus_f", referenceId="f-now")).document
    mark = post(served, "checkpoint", {"customerId": "cus_f", "period": running["period"]})
    assert (mark.document["closed"], mark.document["seq"]) == (False, 101)
    assert post(served, "delta", delta("cus_f", 1, referenceId="f-then")).document["period"] == running["period"]

    derived = served.call("GET", f"{BASE}/derive/cus_f").document
    assert ("10", closed[0]["id"], 2) == (derived["balance"], derived["checkpoint"]["id"], derived["deltas"])
    receipts = [served.call("GET", f"{BASE}/receipt/cus_f?referenceId=f-7").document for _ in range(2)]
    assert receipts[0] == receipts[1]
    assert served.call("GET", f"{BASE}/gaps/cus_f").document == {"customerId": "cus_f", "lastSeq": 102, "gaps": []}


@pytest.mark.requirement("C44")
def test_who_derives_after_every_emit_is_advised_not_to(served: Served) -> None:
    """
    After five in a row, in a header; a client that derives now and then hears nothing.
    """

    def derive() -> str | None:
        return served.call("GET", f"{BASE}/derive/cus_g").headers.get("onceward-advice")

    heard = []
    for number in range(6):
        post(served, "delta", delta("cus_g"), key=f"g-{number}")
        heard.append(derive())
    assert [one is not None and one.startswith("derive-per-emit") for one in heard] == [False] * 4 + [True] * 2

    post(served, "delta", delta("cus_g"), key="g-7")
    post(served, "delta", delta("cus_g"), key="g-8")
    assert None is derive()


@pytest.mark.requirement("C55", "C56", "C57")
def test_environments_and_tenants_have_ledgers_of_their_own(served: Served) -> None:
    """
    The same key, reference and customer in test and live, and of another tenant: three deltas, none seen by the others.
    """
    tokens = {
        "test": served.token,
        "live": served.new_token(environment="live"),
        "other": served.new_token("globex", environment="test"),
    }
    made = {
        name: post(served, "delta", delta("cus_h", referenceId="h-1"), key="h-1", token=token).document
        for name, token in tokens.items()
    }

    assert [one["duplicate"] for one in made.values()] == [False] * 3
    assert len({one["id"] for one in made.values()}) == 3
    for name, token in tokens.items():
        assert served.call("GET", f"{BASE}/delta/{made[name]['id']}", token=token).status == 200
        for other in set(tokens) - {name}:
            assert served.call("GET", f"{BASE}/delta/{made[other]['id']}", token=token).status == 404
    refused = post(served, "delta", delta("cus_h"), key="test:h-2", token=tokens["live"])
    assert (refused.status, refused.code) == (400, "key_invalid")


def test_who_may_not_write_may_look(served: Served) -> None:
    """
    A read token derives and books nothing; without a token nothing is told.
    """
    post(served, "delta", delta("cus_i"), key="i-1")
    reader = served.new_token(role="read")

    assert post(served, "delta", delta("cus_i"), key="i-2", token=reader).status == 403
    assert served.call("GET", f"{BASE}/derive/cus_i", token=reader).status == 200
    assert served.call("GET", f"{BASE}/derive/cus_i", token="").status == 401
    assert post(served, "delta", {"not": "even looked at"}, token="").status == 401
