"""A store in an empty folder, ONCEWARD_STORE pointing at it, and a way to type commands."""

from __future__ import annotations

import importlib
import io
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import server_stores as stores

from onceward import Gate, Retry
from onceward._core.record import FRESH, Claimant, Record, claim
from onceward.cli import main
from onceward.errors import NothingHappened
from onceward.gate import DeadLetter
from onceward.gate.operator_actions import id_of_key
from onceward.journal import Journal
from onceward.messaging.inbox import Inbox, Source, WebhookEvent
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.inbox.stored_sources import StoredSource
from onceward.messaging.outbox.outbox_admin import OutboxAdmin
from onceward.messaging.webhooks import Secret, Stripe
from onceward.runtime.environment import Environment
from onceward.service.access import Access
from onceward.service.sql import Keyed, LocalDatabase
from onceward.service.sql.moving import DatabasePlace, export_database
from onceward.stores import open_store

URL = "sqlite:///agent.db"
SCOPE = "live:acme"


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Past(Environment):
    """The time some seconds ago: what is written with it has aged by now."""

    def __init__(self, seconds: float) -> None:
        self._micros = int(seconds * 1_000_000)

    def wall_us(self) -> int:
        return super().wall_us() - self._micros


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Type a command, in this process."""

    def run(*typed: str, stdin: bytes = b"") -> Ran:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = main(list(typed))
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and no store named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCEWARD_STORE", raising=False)
    return tmp_path


@pytest.fixture
def kind() -> str:
    """The kind of store. A module that is about all of them overrides this."""
    return "sqlite"


@pytest.fixture
def url(kind: str) -> str:
    """The URL of an empty store of that kind."""
    return stores.empty(kind) if kind in stores.ON_SERVERS else URL


@pytest.fixture
def store(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Ran]) -> str:
    """The URL of a store that is ready and named by ONCEWARD_STORE."""
    monkeypatch.setenv("ONCEWARD_STORE", url)
    assert run("store", "init").code == 0
    return url


@pytest.fixture
def gate_at(store: str, kind: str) -> Iterator[Callable[..., Gate]]:
    """Gates on that store, some seconds ago."""
    gates: list[Gate] = []

    def gate_at(seconds_ago: float = 0, scope: str = SCOPE) -> Gate:
        if kind in stores.ON_SERVERS:
            opened = stores.aged(kind, store, seconds_ago)
        else:
            opened = open_store(store, environment=Past(seconds_ago))
        gates.append(Gate(opened, scope=scope))
        return gates[-1]

    yield gate_at
    for gate in gates:
        gate.close()


@pytest.fixture
def gate(gate_at: Callable[..., Gate]) -> Gate:
    """A gate on that store."""
    return gate_at()


@pytest.fixture
def doubted(gate: Gate) -> Callable[..., Record]:
    """Leave an operation in doubt: its function raises, and cannot say what happened."""

    def doubted(key: str = "charge:order-17", message: str = "connection reset", name: str = "charge") -> Record:
        def charge() -> None:
            raise RuntimeError(message)

        with pytest.raises(RuntimeError):
            gate.call(key, charge, name=name)
        found = gate.store.load(id_of_key(SCOPE, key))
        assert found is not None
        return found

    return doubted


@pytest.fixture
def claimed(gate_at: Callable[..., Gate]) -> Callable[..., Record]:
    """Claim a key and never end it, some seconds ago, for a minute."""

    def claimed(key: str, *, seconds_ago: float = 0, guarantee: str = "blind") -> Record:
        claimant = Claimant(
            id_of_key(SCOPE, key), "key", SCOPE, f"live:{key}", "", None, guarantee, b"\x01" * 33, 60_000_000, 0, False
        )
        write = claim(claimant, FRESH, token=b"t" * 16, version=b"v" * 16)
        standing = gate_at(seconds_ago).store.put(write, None)
        assert standing.landed
        assert standing.record is not None
        return standing.record

    return claimed


@pytest.fixture
def given_up(gate: Gate) -> Callable[..., DeadLetter]:
    """Let a call named charge fail for good; its dead letter."""

    def given_up(
        key: str | None = "charge:order-18", *, error: Exception | None = None, payload: Any = "plain", **order: Any
    ) -> DeadLetter:
        dead = gate.dead_letters(payload=payload)

        def charge(**order: Any) -> None:
            raise error or ConnectionRefusedError("connection refused")

        policy = Retry(1, dead=dead, name="charge")
        before = {one.id for one in dead.list()}
        with pytest.raises(Exception):  # noqa: B017 - which one it is does not matter here
            (policy if key is None else policy.bind(key=key)).call(charge, **order)
        (letter,) = [one for one in dead.list() if one.id not in before]
        return letter

    return given_up


@pytest.fixture
def service_folder(folder: Path) -> Path:
    """The folder of a service that has a database with a keyed write in it, and an export of another one beside it."""
    for place, name in (("onceward-data", "shop"), ("elsewhere", "stock")):
        file = folder / place / "databases" / "live-acme" / f"{name}.db"
        (folder / place).mkdir(mode=0o700)
        file.parent.mkdir(parents=True)
        with LocalDatabase(file) as database:
            database.query("CREATE TABLE things (name TEXT)")
            identity = Keyed(f"live:acme:db:{name}", "evt-1")
            database.query("INSERT INTO things VALUES ('one')", identity=identity)
    export_database(DatabasePlace(str(folder / "elsewhere"), "acme", "live", "stock"), folder / "export.jsonl")
    return folder / "onceward-data"


@pytest.fixture
def customers(store: str) -> None:
    """A tenant that pays in advance, and a token with the id of the examples."""
    with Access.open(store, create=True) as access:
        access.create_tenant("acme", prepaid=True)
        access.create_token("acme")
    database = sqlite3.connect("agent.access.db")
    database.execute("UPDATE onceward_tokens SET id = 'k3v9x2m8q4ab'")
    database.commit()
    database.close()


@pytest.fixture
def outgoing(store: str, folder: Path) -> str:
    """A dead message with the id of the examples, a disabled endpoint, and a file for a relay."""
    id = "msg_4cd81f1c58f1d7a3b1f6f4b0a3e4c2d9"
    OutboxAdmin(store, create=True).close()
    database = sqlite3.connect("agent.db")
    database.execute(
        """INSERT INTO onceward_outbox_messages (id, endpoint, topic, payload, content_type, headers, created_at, state,
        due_at, attempts, reason, ended_at) VALUES (?, 'billing', 'invoice.paid', x'31', 'application/json', '{}',
        1000000, 'dead', 1000000, 10, 'HTTP 500', 2000000)""",
        (id,),
    )
    database.execute("INSERT INTO onceward_outbox_disabled VALUES ('billing', 3000000, 'HTTP 410')")
    database.commit()
    database.close()
    (folder / "relay.toml").write_text('[endpoints.billing]\nkind = "python"\ncall = "builtins:str"\n')
    return id


APP = """
import onceward

gate = onceward.{gate}({store!r}, scope={scope!r})
dead = gate.dead_letters()
something = object()


def was_charged(record):
    return onceward.Found({{"charge": record.digest}})


@dead.handler("charge")
{word}def charge(**order):
    {body}
"""


@pytest.fixture
def shop(store: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write an app called shop, with a handler of charges, into the folder. A command closes its gate: one each."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    # Replaced and put back: every test's shop is another one.
    monkeypatch.setitem(sys.modules, "shop", sys)
    monkeypatch.delitem(sys.modules, "shop")

    def shop(body: str = "return 'done'", *, scope: str = SCOPE, gate: str = "Gate") -> None:
        word = "async " if gate == "AsyncGate" else ""
        (folder / "shop.py").write_text(APP.format(store=store, scope=scope, body=body, gate=gate, word=word))
        importlib.invalidate_caches()
        sys.modules.pop("shop", None)

    return shop


@pytest.fixture
def given_up_event(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source `stripe`, and its event `evt_1`, which was given up."""
    text = "a secret that is long enough"
    monkeypatch.setenv("STRIPE_SECRET", text)

    def refuse(event: WebhookEvent) -> None:
        raise NothingHappened

    with Inbox(store, scope=SCOPE) as inbox:
        inbox.store_source(
            StoredSource("stripe", SCOPE, Stripe(), ("env:STRIPE_SECRET",), "shop:paid", None, 5, None).checked()
        )
        inbox.add(Source("stripe", Stripe(), [text], refuse, attempts=1))
        inbox.receive(
            "stripe", *signed_sample(Stripe(), Secret.plain(text), "evt_1", now=Environment().wall_us() / 1e6)
        )
        inbox.drain()


@pytest.fixture
def attempts(store: str) -> None:
    """A run in the journal."""
    with (
        Journal(store, scope=SCOPE, worker="reconciler-v1") as journal,
        journal.run("march") as run,
        run.call("record"),
    ):
        pass
