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
        "a write that is tried again without a key",
        "A timeout says that no answer came, and not that nothing was done. If the first request arrived, the\n"
        "second one is a second charge. Send a key that is the same on every attempt, or run it under a gate. Not\n"
        "reported: questions by POST, files that are sent, and attempts after an answer that says that nothing was\n"
        "done (4xx but 408, a connection that was refused, a login that was renewed).",
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
        "The decorator cannot know that the first attempt was done and only its answer was lost. Give the write a\n"
        "key, or retry only what proves that nothing was sent (such as `httpx.ConnectError`).",
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
        "a client whose own retries send writes again without a key",
        "`urllib3` leaves POST out of its retries for this reason; `allowed_methods=None` puts it back. An SDK with\n"
        "`max_retries=3` does the same for every call that has no key. Libraries that add a key by themselves are\n"
        "known and not reported.",
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
        "a retry of what another attempt does not change: 400, 401, 403, 404, 422",
        "The request is wrong, and will be wrong again: the retries are wasted, and the error surfaces late. Retry\n"
        "408, 429, 502, 503, 504 and what did not arrive. 409 is not reported: several services say with it that\n"
        "the first attempt is still running. Nor is a status in a list whose comment mentions that status:\n"
        "then someone thought about it.",
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
        "An outage fills every worker with callers that will never stop, and nobody notices. Limit the attempts\n"
        "and the time, then set the operation aside for a person to look at. A listener, a consumer or a connection "
        "that\n"
        "is to be kept is not reported: it is right to continue for ever.",
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
        "a retry whose pauses are the same for everybody",
        "All callers failed together, so all come back together, and the service that was about to recover fails\n"
        "again. Sleep a random time between nothing and the ceiling: `random.uniform(0, min(cap, base *\n"
        "2**attempt))`. Not reported: what waits as long as the server says, what one person starts (commands,\n"
        "scripts), and what asks a server of its own (localhost).",
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
