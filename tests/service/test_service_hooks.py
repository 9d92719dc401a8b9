"""`POST /hooks/{source}` of a real service: believed or refused, answered before anything is processed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from service_support import Heard, Served
from starlette.testclient import TestClient

from onceward.messaging.inbox import AsyncInbox, Inbox, Source
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.inbox.stored_sources import StoredSource
from onceward.messaging.webhooks import PacSpace, Scheme, StandardWebhooks, Stripe
from onceward.runtime.environment import REAL
from onceward.service.access import Accounts, Allowance, FloodControl
from onceward.service.hooks.app import HooksApp
from onceward.service.settings import Settings, store_url_of
from onceward.service.web.calls import Authenticator

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "messaging" / "inbox"))

import odd_deliveries

TEXT = "canarysecret0123456789abcdef0123"
"""Each scheme reads it in its own way: as text, or as base64."""
SCHEMES: dict[str, Scheme] = {
    "standard": StandardWebhooks(), "stripe": Stripe(), "hmac": odd_deliveries.HMAC, "pac": PacSpace(),
}  # fmt: skip
HANDLERS = """
import pathlib, time
from onceward.messaging.inbox import handler
HERE = pathlib.Path(__file__).parent

@handler(guarantee="repeatable")
def note(event):
    with (HERE / "noted").open("a") as file:
        file.write(event.id + "\\n")

@handler(guarantee="repeatable")
def slow(event):
    (HERE / "slow-began").touch()
    while not (HERE / "go-on").exists():
        time.sleep(0.01)
    note(event)
"""
PATIENCE_SECONDS = 60


class Hooked:
    """A service with sources."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = store_url_of(Settings(folder=str(folder)))
        (folder / "service_hooks.py").write_text(HANDLERS)
        with Inbox(self.url, stored_sources=True) as inbox:
            for name, scheme in SCHEMES.items():
                inbox.store_source(self.stored(name, scheme, "note"))
            inbox.store_source(self.stored("slow", PacSpace(), "slow"))
            inbox.store_source(self.stored("bare", PacSpace(), "note")._replace(secrets=("env:NOT_SET_HERE",)))

    def stored(self, name: str, scheme: Scheme, handler: str) -> StoredSource:
        return StoredSource(
            name, "test:demo", scheme, ("env:HOOK_SECRET",), f"service_hooks:{handler}", None, 5, None
        ).checked()

    def start(self, *flags: str) -> Served:
        self.served = Served.started(
            self.folder, "--flood-burst", "100000", "--hooks-path", str(self.folder), *flags, HOOK_SECRET=TEXT
        )
        return self.served

    def send(self, source: str, headers: dict[str, Any], body: bytes) -> Heard:
        """One delivery, headers as bytes: also those that no client would send."""
        connection = http.client.HTTPConnection(urlsplit(self.served.address).netloc, timeout=PATIENCE_SECONDS)
        try:
            sent = {name: value.encode() for name, value in headers.items()}
            connection.request("POST", f"/hooks/{source}", body, sent)
            response = connection.getresponse()
            return Heard(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def event(self, source: str, id: str) -> Heard:
        """A right one."""
        return self.send(source, *signed_sample(SCHEMES.get(source, PacSpace()), TEXT, id, now=time.time()))

    def counts(self) -> dict[str, int]:
        with Inbox(self.url, stored_sources=True) as inbox:
            return {one.name: one.events for one in inbox.sources()}

    def until_noted(self, *ids: str) -> list[str]:
        """Wait until these have been processed; all that were."""
        until = time.monotonic() + PATIENCE_SECONDS
        noted: list[str] = []
        while not {*ids} <= {*noted} and time.monotonic() < until:
            time.sleep(0.02)
            file = self.folder / "noted"
            noted = file.read_text().split() if file.exists() else []
        return [one for one in noted if one in ids]


@pytest.fixture(scope="module")
def hooked() -> Iterator[Hooked]:
    """One service for the module."""
    with tempfile.TemporaryDirectory(prefix="onceward-hooks-") as folder:
        made = Hooked(Path(folder))
        made.start()
        try:
            yield made
        finally:
            made.served.stop()


@pytest.mark.requirement("C52", "C53", "C49")
@pytest.mark.parametrize("source", list(SCHEMES))
def test_an_event_is_received_answered_and_processed_once(hooked: Hooked, source: str) -> None:
    """
    Exact bodies, for every scheme; a redelivery is a duplicate and changes nothing.
    """
    id = f"{source}-once"

    first, again = hooked.event(source, id), hooked.event(source, id)

    assert (first.status, first.body) == (200, b'{"received": true}')
    assert (again.status, again.body) == (200, b'{"received": true, "duplicate": true}')
    assert [id] == hooked.until_noted(id)


@pytest.mark.requirement("C47", "C48", "C60")
def test_answers_do_not_wait_for_handlers(hooked: Hooked) -> None:
    """
    More events than there are threads, and no handler can end before all of them have been answered.
    """
    ids = [f"slow-{number}" for number in range(8)]

    answers = [hooked.event("slow", id).body for id in ids]
    assert not hooked.until_noted()
    (hooked.folder / "go-on").touch()

    assert answers == [b'{"received": true}'] * 8
    assert sorted(ids) == sorted(hooked.until_noted(*ids))


@pytest.mark.requirement("C59")
@pytest.mark.fault("a-message-dated-ahead-is-believed")
def test_odd_deliveries_get_a_documented_refusal_and_leave_nothing(hooked: Hooked) -> None:
    """
    Every odd time, signature, id and body, over a socket: 400 or 401 with a code, never 500; no row.
    """
    before = hooked.counts()
    found = {}
    deliveries = odd_deliveries.odd(TEXT, int(time.time()), ahead=3600)
    for one in deliveries:
        source = {StandardWebhooks: "standard", Stripe: "stripe"}.get(type(one.scheme), "hmac")
        heard = hooked.send(source, one.headers, one.body)
        found[one.name] = (heard.status, heard.document.get("code"))
    expected = {one.name: (400 if one.code == "event_invalid" else 401, one.code) for one in deliveries}

    assert found == expected
    assert before == hooked.counts()


def test_who_is_unknown_too_long_or_without_a_secret_is_refused(hooked: Hooked) -> None:
    """
    404 in the same words for every name that is none; 413; 503, so that the sender comes again.
    """
    before = hooked.counts()
    unknown = [hooked.event(name, "e-1") for name in ("nobody", "Standard", "standard%20", "a" * 300)]
    long = hooked.send("pac", {}, b"x" * 5_000_001)
    bare = hooked.event("bare", "e-1")

    assert {(one.status, one.code) for one in unknown} == {(404, "source_unknown")}
    assert len({one.body for one in unknown}) == 1
    assert (long.status, long.code) == (413, "body_too_large")
    assert (bare.status, bare.code) == (503, "source_unready")
    assert before == hooked.counts()


def test_other_methods_and_a_token_change_nothing(hooked: Hooked) -> None:
    """
    The signature is the credential: a token, right or wrong, is neither needed nor enough.
    """
    served = hooked.served

    assert served.call("GET", "/hooks/pac").status == 405
    refused = served.call("POST", "/hooks/pac", {})
    assert (
        refused.status, refused.code, refused.headers["www-authenticate"]
    ) == (401, "signature_invalid", "Signature")  # fmt: skip


def test_the_description_says_that_no_token_is_needed(hooked: Hooked) -> None:
    """
    And what comes back.
    """
    document = hooked.served.call("GET", "/openapi.json", token="").document

    operation = document["paths"]["/hooks/{source}"]["post"]
    assert operation["security"] == []
    assert set(document["components"]["schemas"]["EventReceived"]["properties"]) == {"received", "duplicate"}


def test_secrets_are_in_no_log_and_in_no_database(hooked: Hooked) -> None:
    """
    The row names a variable; the service has the value.
    """
    hooked.event("pac", "canary")
    hooked.until_noted("canary")
    texts = [
        file.read_bytes() for file in hooked.folder.glob("*") if file.is_file() and file.name != "service_hooks.py"
    ]

    assert any(b"HOOK_SECRET" in text for text in texts)
    assert not any(TEXT.encode() in text for text in texts)


@pytest.mark.slow
@pytest.mark.requirement("C51")
def test_what_was_answered_survives_the_service(tmp_path: Path) -> None:
    """
    `kill -9` right after the answer, before anybody could process it; the next service does, once.
    """
    made = Hooked(tmp_path)
    made.start("--hooks-threads", "0")
    assert made.event("pac", "survivor").body == b'{"received": true}'
    os.kill(made.served.process.pid, signal.SIGKILL)
    made.served.stop()

    made.start()
    assert made.event("pac", "survivor").body == b'{"received": true, "duplicate": true}'
    assert made.until_noted("survivor") == ["survivor"]
    made.served.stop()


def test_bad_signatures_are_slowed_by_address_and_right_ones_never(tmp_path: Path) -> None:
    """
    Three at once, then 429 with Retry-After; the same address with a right signature goes through.
    """
    inbox = AsyncInbox(f"sqlite:///{tmp_path}/agent.db", scope="acme")
    inbox.add(Source("pac", PacSpace(), [TEXT], lambda event: None))
    authenticator = Authenticator(None, FloodControl(lambda: 0.0, burst=3))  # type: ignore[arg-type]
    with TestClient(HooksApp(inbox, authenticator).app()) as client:
        bad = [client.post(f"/hooks/{name}", content=b"{}") for name in ("pac", "nobody", "pac", "pac", "nobody")]
        headers, body = signed_sample(PacSpace(), TEXT, "e-1", now=REAL.wall_us() / 1e6)
        right = client.post("/hooks/pac", content=body, headers=headers)
        client.portal.call(inbox.close)  # type: ignore[union-attr]

    assert [one.status_code for one in bad] == [401, 404, 401, 429, 429]
    assert bad[-1].json()["code"] == "rate_limited"
    assert int(bad[-1].headers["retry-after"]) >= 1
    assert {"received": True} == right.json() == json.loads(right.content)


@pytest.mark.fault("webhooks-are-verified-for-nothing")
def test_who_makes_it_verify_a_lot_pays_for_it(tmp_path: Path) -> None:
    """
    Long deliveries use up the processor time of their address, forged or not: then it waits, and no other one does.
    """
    inbox = AsyncInbox(f"sqlite:///{tmp_path}/agent.db", scope="acme")
    inbox.add(Source("pac", PacSpace(), [TEXT], lambda event: None))
    accounts = Accounts(lambda: 0.0, Allowance(cpu_burst=0.01, cpu_per_second=0.001))
    access: Any = None
    authenticator = Authenticator(access, FloodControl(lambda: 0.0, burst=100), accounts=accounts)
    with TestClient(HooksApp(inbox, authenticator).app(), client=("192.0.2.1", 1)) as client:
        forged = [client.post("/hooks/pac", content=b"x" * 1_000_000).status_code for _ in range(4)]
        client.portal.call(inbox.close)  # type: ignore[union-attr]

    assert forged == [401, 401, 429, 429]
    assert accounts.of_address("192.0.2.1").usage().cpu_seconds == pytest.approx(0.012)
    assert accounts.of_address("192.0.2.2").cpu_left() == 0.01
