"""
OW110 to OW115 in words: what is retried, and how.
"""

from __future__ import annotations

from typing import Final

from onceward.lint.findings import Rule, Severity

RETRY_RULES: Final = (
    Rule(
        "OW110",
        "retried-write-without-key",
        "a write that is retried without a key",
        "A timeout says that no response came, not that nothing was done. If the first request arrived, the second\n"
        "one is a second charge. Send the same key on every attempt, or run the write under a gate. Not reported: a\n"
        "POST that only reads, file uploads, and attempts after a failure that proves that nothing was done (a 4xx\n"
        "other than 408, a refused connection, a renewed login).",
        """\
import random
import time

import requests


def charge(order):
    for attempt in range(3):
        try:
            return requests.post("https://api.example.com/charges", json=order, timeout=30)
        except requests.Timeout:
            time.sleep(random.uniform(0, 2**attempt))
    raise TimeoutError
""",
        """\
import random
import time

import requests


def charge(order):
    headers = {"Idempotency-Key": f"charge:{order['id']}"}
    for attempt in range(3):
        try:
            return requests.post("https://api.example.com/charges", json=order, headers=headers, timeout=30)
        except requests.Timeout:
            time.sleep(random.uniform(0, 2**attempt))
    raise TimeoutError
""",
    ),
    Rule(
        "OW111",
        "retry-library-around-write",
        "a retry library around a write without a key",
        "The decorator cannot know that the first attempt was done and only its response was lost. Give the write a\n"
        "key, or retry only errors that prove that nothing was sent (such as `httpx.ConnectError`).",
        """\
import httpx
import stamina


@stamina.retry(on=httpx.TransportError, attempts=3)
def send_invoice(client: httpx.Client, invoice):
    return client.post("/invoices", json=invoice)
""",
        """\
import httpx
import stamina


@stamina.retry(on=httpx.TransportError, attempts=3)
def send_invoice(client: httpx.Client, invoice):
    return client.post("/invoices", json=invoice, headers={"Idempotency-Key": f"invoice:{invoice['id']}"})
""",
    ),
    Rule(
        "OW112",
        "client-retries-writes",
        "a client whose built-in retries repeat writes without a key",
        "This is why `urllib3` does not retry POST; `allowed_methods=None` makes it. An SDK with `max_retries=3`\n"
        "does the same for every call that has no key. Libraries that add a key by themselves are known and not\n"
        "reported.",
        """\
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

session = requests.Session()
session.mount("https://", HTTPAdapter(max_retries=Retry(total=3, allowed_methods=None)))


def order(basket):
    return session.post("https://api.example.com/orders", json=basket, timeout=30)
""",
        """\
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

session = requests.Session()
session.mount("https://", HTTPAdapter(max_retries=Retry(total=3)))


def order(basket):
    return session.post("https://api.example.com/orders", json=basket, timeout=30)
""",
    ),
    Rule(
        "OW113",
        "retried-client-error",
        "a retry of an error that another attempt cannot fix: 400, 401, 403, 404, 422",
        "The request is wrong, and will be wrong again: the retries are wasted, and the error surfaces late. Retry\n"
        "408, 429, 502, 503, 504 and requests that did not arrive. Not reported: 409, because several services use\n"
        "it to say that the first attempt is still running; and a status in a list whose comment mentions that\n"
        "status, because someone thought about it.",
        """\
RETRY_STATUSES = {400, 401, 429, 502, 503, 504}


def should_retry(status):
    return status in RETRY_STATUSES
""",
        """\
RETRY_STATUSES = {408, 429, 502, 503, 504}


def should_retry(status):
    return status in RETRY_STATUSES
""",
        Severity.WARNING,
    ),
    Rule(
        "OW114",
        "retries-without-ceiling",
        "a retry that never gives up",
        "During an outage, callers that never stop fill every worker, and nobody notices. Limit the attempts and the\n"
        "time, then set the operation aside for a person to look at. Not reported: listeners, consumers and\n"
        "connections that must be kept, which are right to continue for ever.",
        """\
import httpx
from tenacity import retry, wait_random_exponential


@retry(wait=wait_random_exponential(max=60))
def rates():
    return httpx.get("https://api.example.com/rates")
""",
        """\
import httpx
from tenacity import retry, stop_after_attempt, wait_random_exponential


@retry(wait=wait_random_exponential(max=60), stop=stop_after_attempt(5))
def rates():
    return httpx.get("https://api.example.com/rates")
""",
        Severity.WARNING,
    ),
    Rule(
        "OW115",
        "retries-without-jitter",
        "a retry that waits equally long for every caller",
        "All callers failed together, so they all come back together, and the service that was about to recover\n"
        "fails again. Sleep a random time between zero and the ceiling:\n"
        "`random.uniform(0, min(cap, base * 2**attempt))`. Not reported: waits whose length the server gives, what\n"
        "one person starts (commands, scripts), and calls to a server on the same machine (localhost).",
        """\
import time

import httpx


def rates():
    for attempt in range(5):
        try:
            return httpx.get("https://api.example.com/rates")
        except httpx.TransportError:
            time.sleep(2**attempt)
    raise TimeoutError
""",
        """\
import random
import time

import httpx


def rates():
    for attempt in range(5):
        try:
            return httpx.get("https://api.example.com/rates")
        except httpx.TransportError:
            time.sleep(random.uniform(0, 2**attempt))
    raise TimeoutError
""",
        Severity.WARNING,
    ),
)
