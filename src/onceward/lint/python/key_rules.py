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
        "a key, or a reference, that is made of the time",
        "A retry comes later, so it has another key, and the other side sees a new operation: the work is done\n"
        "twice. A time that is stored with the thing itself (`order.created_at`) is fine; one that is read now is\n"
        "not. Use ids that are stored.",
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
        "The retries inside this call share the key. The next delivery of the job, the next click and the next\n"
        "start of the process do not: each is a new operation. Derive the key from what the operation is about, or\n"
        "store it before the first attempt. A fallback for callers who bring no key (`key or str(uuid4())`), a key\n"
        "that is assigned to a field, and one that is handed to something that stores it are not reported.",
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
        "This is a key that protects nothing: it is there on every request, and it is new on every request. Make it\n"
        "once, before the first attempt.",
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
        "a key that holds the number of the attempt",
        "A retry that changes the key is a new operation. Put the number of the attempt into a log.",
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
        "a key made of what belongs to one process: `id()`, `hash()`, a pid, a host's name",
        "`id()` is an address in memory, and `hash()` of a text is salted differently in every process. After a "
        "restart,\n"
        "or on another host, the same operation has another key; and two operations can have the same.",
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
        "a key that holds an address, a number or a name of a person",
        "Keys are written to logs, sent to providers and read aloud in support calls. Use an opaque id in its\n"
        "place. What goes through a hash first is not reported.",
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
        "The second operation is taken for a retry of the first: it is not done, and gets the first one's answer.\n"
        "That happens with a fixed text, with a default that is made once when the function is defined, and with a\n"
        "recipe that says who is calling and not what about.",
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
