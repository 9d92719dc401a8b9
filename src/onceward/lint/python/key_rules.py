"""
OW101 to OW107 in words: what a key is made of.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule, Severity

KEY_RULES: Final = (
    Rule(
        "OW101",
        "key-from-clock",
        "a key or a reference that contains the current time",
        "A retry runs later, so it has another key, and the other side sees a new operation: the work is done twice.\n"
        "Use ids that are stored. A time that is stored with the thing itself (`order.created_at`) is fine; the\n"
        "current time is not.",
        """\
import time

import payments


def charge(user_id, cents):
    key = f"{user_id}:{time.time()}"
    return payments.charge(user_id, cents, idempotency_key=key)
""",
        """\
import payments


def charge(user_id, order_id, cents):
    key = f"charge:{user_id}:{order_id}"
    return payments.charge(user_id, cents, idempotency_key=key)
""",
    ),
    Rule(
        "OW102",
        "key-made-afresh",
        "a key that is new on every call and never stored",
        "The retries inside this call share the key. The next delivery of the job, the next click and the next start\n"
        "of the process do not: each is a new operation. Derive the key from what the operation is about, or store\n"
        "it before the first attempt. Not reported: a fallback for callers that send no key (`key or str(uuid4())`),\n"
        "a key that is assigned to a field, and a key that is passed to something that stores it.",
        """\
import uuid

import stripe


def refund(charge_id):
    return stripe.Refund.create(charge=charge_id, idempotency_key=str(uuid.uuid4()))
""",
        """\
import stripe


def refund(charge_id):
    return stripe.Refund.create(charge=charge_id, idempotency_key=f"refund:{charge_id}")
""",
    ),
    Rule(
        "OW103",
        "key-made-per-attempt",
        "a key that is made inside the retry, so every attempt has a different one",
        "Such a key protects nothing: every request has one, and every request has a new one. Make the key once,\n"
        "before the first attempt.",
        """\
import uuid

import requests
from tenacity import retry, stop_after_attempt


@retry(stop=stop_after_attempt(3))
def pay(order):
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    return requests.post("https://api.example.com/charges", json=order, headers=headers, timeout=30)
""",
        """\
import requests
from tenacity import retry, stop_after_attempt


@retry(stop=stop_after_attempt(3))
def pay(order):
    headers = {"Idempotency-Key": f"charge:{order['id']}"}
    return requests.post("https://api.example.com/charges", json=order, headers=headers, timeout=30)
""",
    ),
    Rule(
        "OW104",
        "key-counts-attempts",
        "a key that contains the attempt number",
        "A retry that changes the key is a new operation. Put the attempt number in a log instead.",
        """\
import flights


def book(user_id, task_id, retry_count):
    return flights.book(user_id, idempotency_key=f"{user_id}:{task_id}:{retry_count}")
""",
        """\
import flights


def book(user_id, task_id, step_id):
    return flights.book(user_id, idempotency_key=f"{user_id}:{task_id}:{step_id}")
""",
    ),
    Rule(
        "OW105",
        "key-of-this-process",
        "a key made of values that belong to one process: `id()`, `hash()`, a pid, a host name",
        "`id()` is an address in memory, and `hash()` of a text is salted differently in every process. After a\n"
        "restart, or on another host, the same operation has another key, and two operations can have the same key.",
        """\
import payments


def charge(order):
    return payments.charge(order.cents, idempotency_key=f"charge:{id(order)}")
""",
        """\
import payments


def charge(order):
    return payments.charge(order.cents, idempotency_key=f"charge:{order.id}")
""",
    ),
    Rule(
        "OW106",
        "personal-data-in-key",
        "a key that contains the address, number or name of a person",
        "Keys are written to logs, sent to providers and read aloud in support calls. Use an opaque id instead. A\n"
        "value that is hashed first is not reported.",
        """\
import mailer


def welcome(user):
    return mailer.deliver("welcome", to=user, idempotency_key=f"welcome:{user.email}")
""",
        """\
import mailer


def welcome(user):
    return mailer.deliver("welcome", to=user, idempotency_key=f"welcome:{user.id}")
""",
        Severity.WARNING,
    ),
    Rule(
        "OW107",
        "key-shared",
        "a key that different operations share",
        "The second operation is taken for a retry of the first: it does not run, and its caller gets the result of\n"
        "the first. This happens with a fixed text, with a default value that is made once when the function is\n"
        "defined, and with a recipe that names the caller but not the operation.",
        """\
import payments


def charge(order):
    return payments.charge(order.cents, idempotency_key="charge")
""",
        """\
import payments


def charge(order):
    return payments.charge(order.cents, idempotency_key=f"charge:{order.id}")
""",
    ),
)
