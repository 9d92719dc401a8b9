"""Dead letters of our own clients hold what was sent, and are done again without a handler of the user's."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from middleman import Middleman
from own_client_support import INSERT, ROW, TABLE, Driven, Maker

from onceward import AsyncGate, ConfigurationError, Gate, OutcomeUnknown, Retry, stop_of
from onceward._core.sent_request import SentRequest
from onceward.client.service_target import retry_policy_of
from onceward.errors import ServiceUnreachable
from onceward.gate import Sealed
from onceward.http.client.dead_letter_sender import dead_letter_sender
from onceward.http.httpx import Transport
from onceward.http.requests import Adapter
from onceward.stores import open_store
from onceward.testing.clock import StillEnvironment
from service.service_support import Served

pytestmark = pytest.mark.dose(1, of="client_of")


@pytest.fixture
def between(served: Served) -> Iterator[Middleman]:
    """Somebody in between."""
    with Middleman(served.address) as middleman:
        yield middleman


class Letters:
    """A gate's dead letters in one file, in the colour of a client."""

    def __init__(self, maker: Maker, folder: Path, payload: Any = "plain") -> None:
        self.url = f"sqlite:///{folder}/letters.db"
        self._runner = maker._runner
        kind = Gate if self._runner is None else AsyncGate
        self.gate = kind(self.url, scope="test:demo")
        self.box = self.gate.dead_letters(payload=payload)
        self.retry = Retry(attempts=2, base=0.001, cap=0.002, dead=self.box)

    @property
    def seen(self) -> Any:
        """The box, as a blocking one."""
        return self.box if self._runner is None else Driven(self.box, self._runner)

    def close(self) -> None:
        """Close the gate."""
        if self._runner is None:
            self.gate.close()
        else:
            self._runner.run(self.gate.close())


@pytest.fixture
def letters(client_of: Maker, tmp_path: Path) -> Iterator[Callable[..., Letters]]:
    """Makes them."""
    made: list[Letters] = []

    def make(payload: Any = "plain") -> Letters:
        made.append(Letters(client_of, tmp_path, payload))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def path(served: Served, name: str) -> str:
    """A database with a table."""
    found = f"/v1/db/demo/{name}"
    served.call("PUT", found)
    served.query(found, TABLE)
    return found


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "delta": lambda client, name: client.balance.emit(f"cus_{name}", 1, "api call", reference_id=f"call:{name}"),
    "query": lambda client, name: client.db("demo", name).query(INSERT, ROW, idempotency_key=f"row:{name}"),
    "step": lambda client, name: client.db("demo", name).plan(f"plan:{name}").query("one", INSERT, ROW),
    "batch": lambda client, name: client.db("demo", name).batch([(INSERT, ROW)], idempotency_key=f"batch:{name}"),
}
KEYS = {"delta": "test:call:{}", "query": "test:row:{}", "batch": "test:batch:{}"}


def effects(served: Served, kind: str, name: str) -> int:
    """How often it happened."""
    if kind == "delta":
        return int(served.call("GET", f"/api/v1/balance/gaps/cus_{name}").document["lastSeq"])
    return int(served.query(f"/v1/db/demo/{name}", "SELECT count(*) FROM events").document["rows"][0][0])


@pytest.mark.fault("a-client-letter-holds-no-request", "a-reference-does-not-name-its-letter")
@pytest.mark.parametrize("kind", CALLS)
def test_a_call_that_was_given_up_is_done_again_by_its_client(
    kind: str,
    client_of: Maker,
    letters: Callable[..., Letters],
    served: Served,
    between: Middleman,
    path: str,
    name: str,
) -> None:
    """
    Its answers are lost until the client gives up. The letter has its key (or reference), method, address and body;
    requeueing it needs no handler, sends the same bytes, and it has happened once.
    """
    dead = letters()
    client = client_of(between.address, token=served.token, retry=dead.retry)
    between.spoil = ["lose answer"] * 2
    with pytest.raises(ServiceUnreachable):
        CALLS[kind](client, name)
    (letter,) = dead.seen.list()
    known = letter.key == KEYS[kind].format(name) if kind in KEYS else letter.key.startswith("test:step:")

    assert (letter.keyed, letter.payload, known) == (True, "plain", True)
    assert letter.request is not None and letter.request.startswith(f"POST {between.address}/")
    dead.seen.requeue(letter)
    sent = between.passed[-3:]
    assert [one.body for one in sent] == [sent[0].body] * 3
    assert [one.headers.get("idempotency-key") for one in sent] == [sent[0].headers.get("idempotency-key")] * 3
    assert dead.seen.list() == ()
    assert effects(served, kind, name) == 1


def test_given_up_again_it_is_the_same_letter(
    client_of: Maker, letters: Callable[..., Letters], served: Served, between: Middleman, path: str, name: str
) -> None:
    """
    Counted up, whoever gave it up: the program a second time, or a requeue in vain.
    """
    dead = letters()
    client = client_of(between.address, token=served.token, retry=dead.retry)
    between.spoil = ["cut"] * 6
    for _ in range(2):
        with pytest.raises(ServiceUnreachable):
            CALLS["delta"](client, name)
    with pytest.raises(ServiceUnreachable):
        dead.seen.requeue(f"call:{name}")
    (letter,) = dead.seen.list()

    assert (letter.count, letter.attempts) == (3, 6)


@pytest.mark.parametrize("payload", ["plain", "sealed"])
def test_one_command_does_it_again(
    payload: str,
    client_of: Maker,
    letters: Callable[..., Letters],
    served: Served,
    between: Middleman,
    path: str,
    name: str,
) -> None:
    """
    `onceward dead requeue DIGEST --send-to ADDRESS`: no app, no handler. The token comes from the environment.
    """
    key = Sealed.new_key()
    dead = letters("plain" if payload == "plain" else Sealed(key))
    client = client_of(between.address, token=served.token, retry=dead.retry)
    between.spoil = ["lose answer"] * 2
    with pytest.raises(ServiceUnreachable):
        CALLS["query"](client, name)
    (letter,) = dead.seen.list()
    told = _onceward("dead", "show", letter.digest, "--store", dead.url)
    seal = [] if payload == "plain" else ["--seal-variable", "SEAL"]
    command = ("dead", "requeue", letter.digest, "--store", dead.url, "--send-to", between.address, *seal)
    done = _onceward(*command, ONCEWARD_TOKEN=served.token, SEAL=key)

    assert f"onceward dead requeue {letter.digest} --send-to {between.address}" in told.stdout
    assert (done.returncode, done.stdout) == (0, f"{letter.digest} requeued, and discarded\n")
    assert dead.seen.list() == ()
    assert effects(served, "query", name) == 1


def test_a_letter_without_its_payload_says_that_it_cannot_be_requeued(
    client_of: Maker, letters: Callable[..., Letters], served: Served, between: Middleman, path: str, name: str
) -> None:
    """
    By default nothing of the body is kept; the letter still has method, address and key, and says what to do.
    """
    dead = letters(None)
    client = client_of(between.address, token=served.token, retry=dead.retry)
    between.spoil = ["lose answer"] * 2
    with pytest.raises(ServiceUnreachable):
        CALLS["query"](client, name)
    (letter,) = dead.seen.list()
    told = _onceward("dead", "show", letter.digest, "--store", dead.url)

    assert (letter.payload, letter.key) == ("omitted", f"test:row:{name}")
    assert "not possible here: the request was not kept" in told.stdout
    with pytest.raises(ConfigurationError, match="cannot be requeued: its request was not kept"):
        dead.seen.requeue(letter)


def test_no_credential_is_kept(
    client_of: Maker,
    letters: Callable[..., Letters],
    served: Served,
    between: Middleman,
    path: str,
    name: str,
    tmp_path: Path,
) -> None:
    """
    Neither the client's token nor a cookie or a header of the caller's own is anywhere in the store.
    """
    dead = letters()
    client = client_of(between.address, token=served.token, retry=dead.retry)
    between.spoil = ["cut"] * 4
    with pytest.raises(ServiceUnreachable):
        CALLS["query"](client, name)
    gate = Gate(dead.url, scope="test:demo")
    policy = Retry(attempts=2, base=0.001, dead=gate.dead_letters(payload="plain"))
    with httpx.Client(transport=Transport(policy)) as plain:
        secret = {"Authorization": "Bearer s3cret", "Cookie": "s3cret", "X-Api-Key": "s3cret", "X-Other": "s3cret"}
        with pytest.raises(httpx.TransportError):
            plain.post(f"{between.address}/?q=1", headers={**secret, "Idempotency-Key": "k"}, content=b"a body")
    gate.close()
    dump = "\n".join(sqlite3.connect(tmp_path / "letters.db").iterdump()).encode()
    kept = b"".join(
        bytes(row[0]) for row in sqlite3.connect(tmp_path / "letters.db").execute("SELECT result FROM onceward_records")
    )

    assert b"a body" in kept
    assert served.token.encode() not in kept + dump
    assert b"s3cret" not in kept + dump


@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_a_transport_keeps_the_request_for_whoever_sends_to_that_address(
    library: str, between: Middleman, tmp_path: Path
) -> None:
    """
    Any client of ours: the letter holds the request, and the program's own way to that address does it again.
    """
    with Gate(f"sqlite:///{tmp_path}/shop.db", scope="live:acme") as gate:
        dead = gate.dead_letters(payload="plain")
        policy = Retry(attempts=2, base=0.001, dead=dead)
        between.spoil = ["cut"] * 2
        url, headers = f"{between.address}/v1/charges?expand=1", {"Idempotency-Key": "live:c-1"}
        with pytest.raises((httpx.TransportError, requests.ConnectionError)):
            _post(library, policy, url, headers)
        (letter,) = dead.list()
        with pytest.raises(ConfigurationError, match="no sender is registered for"):
            dead.requeue(letter)
        again: list[SentRequest] = []
        dead.handle_requests(between.address, again.append)
        dead.requeue(letter)

        assert letter.request == f"POST {between.address}/v1/charges"
        assert (again[0].method, again[0].url, again[0].body) == ("POST", url, b'{"amount": "\xc3\xa9"}')
        assert again[0].headers["Idempotency-Key"] == "live:c-1"


@pytest.mark.fault("a-request-is-sent-again-however-old")
def test_what_may_have_happened_is_not_sent_again_when_its_key_may_be_forgotten(between: Middleman) -> None:
    """
    Within the time that a key is honoured it is; later, or without a key, only if somebody has looked.
    """
    environment = StillEnvironment()
    with Gate(open_store("memory://", environment=environment), scope="live:acme") as gate:
        dead = gate.dead_letters(payload="plain")
        policy = Retry(1, dead=dead)
        again: list[SentRequest] = []
        dead.handle_requests(between.address, again.append)
        between.spoil = ["cut"] * 3
        for headers in ({"Idempotency-Key": "k-1"}, {"Idempotency-Key": "k-2"}, {}):
            with pytest.raises(httpx.TransportError) as lost:
                _post("httpx", policy, f"{between.address}/charges", headers)
        assert stop_of(lost.value) is not None
        dead.requeue("k-1")
        environment.advance(timedelta(hours=25).total_seconds())
        refused = 0
        for letter in dead.list():
            try:
                dead.requeue(letter)
            except OutcomeUnknown as error:
                refused += "Check whether it did" in str(error)
        assert (len(again), refused) == (1, 2)
        for letter in dead.list():
            dead.requeue(letter, did_not_happen=True)

        assert len(again) == 3


@pytest.mark.fault("a-stored-address-gets-the-token")
def test_the_token_goes_to_the_address_that_was_named_and_to_no_other(between: Middleman) -> None:
    """
    A row in the store, or a redirection by the other side, does not decide who sees a credential.
    """
    send = dead_letter_sender("https://sql.example.com", "a-token")
    elsewhere = SentRequest("POST", f"{between.address}/", {}, b"")
    refused = ""
    try:
        send(elsewhere)
    except Exception as error:
        refused = str(error)

    assert "another address" in refused
    assert between.passed == []
    between.spoil = [(307, {"Location": "http://127.0.0.1:9/"}, b"")]
    with pytest.raises(OSError, match="307"):
        dead_letter_sender(between.address, "a-token")(elsewhere)
    assert len(between.passed) == 1


class TestTheClientsOwnWords:
    """`max_retries`, `timeout` and `api_key`, as other SDKs have them."""

    def test_they_say_how_often_how_long_and_who(self, client_of: Maker, served: Served, between: Middleman) -> None:
        """
        One retry, and no more; the token by its other name.
        """
        between.spoil = ["cut"] * 9
        client = client_of(between.address, api_key=served.token, max_retries=1, timeout=5)
        with pytest.raises(ServiceUnreachable):
            client.balance.derive("cus_1")

        assert len(between.passed) == 2
        assert between.passed[0].headers["authorization"] == f"Bearer {served.token}"
        assert (retry_policy_of(None, None, 5).timeout, retry_policy_of(None, None, None).timeout) == (5, 30)

    def test_two_words_for_one_thing_are_refused(self, client_of: Maker, served: Served) -> None:
        """
        Nothing is guessed.
        """
        with pytest.raises(ConfigurationError, match="token and api_key mean the same"):
            client_of(served.address, token=served.token, api_key=served.token)
        for more in ({"max_retries": 1}, {"timeout": 5}):
            with pytest.raises(ConfigurationError, match="a whole policy"):
                client_of(served.address, token=served.token, retry=Retry(), **more)


def _post(library: str, policy: Retry, url: str, headers: dict[str, str]) -> Any:
    body = '{"amount": "é"}'.encode()
    if library == "httpx":
        with httpx.Client(transport=Transport(policy, profile=None)) as client:
            return client.post(url, content=body, headers=headers)
    with requests.Session() as session:
        session.mount("http://", Adapter(policy, profile=None))
        return session.post(url, data=body, headers=headers)


def _onceward(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onceward", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
