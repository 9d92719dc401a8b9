"""
The Dockerfile and the compose file: linted, and carried out without Docker (`image.py`).

What compose would start is started, with its commands and variables: PostgreSQL is the tests' own, names of hosts
become addresses here, and each container is a process.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from distribution_support import ROOT
from image import Image, carried_out, context

from onceward import Gate
from onceward.messaging.outbox.delivery import endpoints_from
from servers import ending, nginx, postgres
from servers.postgres import free_port
from servers.receiver import Receiver, answer

SCRIPTS = Path(sys.executable).parent
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SECRETS = {
    "POSTGRES_PASSWORD": "the administrator's",
    "ONCEWARD_PASSWORD": "the-services-own",
    "ONCEWARD_PEPPER": "a pepper of more than thirty-two characters",
    "BILLING_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}
WAIT_SECONDS = 120
pytestmark = pytest.mark.timeout(900)  # The image is made by the first test that needs it.
REPLICAS = ("replica-1", "replica-2")


class TestLinted:
    """By the tools that others use."""

    def test_hadolint_finds_nothing(self) -> None:
        """
        At its strictest: style counts, too.
        """
        command = [str(SCRIPTS / "hadolint"), "--failure-threshold", "style", str(ROOT / "Dockerfile")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout) == (0, "")

    def test_compose_keeps_to_its_specification(self) -> None:
        """
        The schema of the Compose specification.
        """
        assert problems("vendor.compose-spec", ROOT / "compose.yaml") == ""

    def test_the_linters_see_something(self, tmp_path: Path) -> None:
        """
        The check itself: a Dockerfile without a version, a service with a word that there is not.
        """
        (tmp_path / "Dockerfile").write_text("FROM python\nRUN pip install x\n")
        (tmp_path / "compose.yaml").write_text("services: {a: {imaginary: b}}\n")
        done = subprocess.run(
            [str(SCRIPTS / "hadolint"), str(tmp_path / "Dockerfile")], capture_output=True, check=False
        )

        assert done.returncode == 1
        assert "imaginary" in problems("vendor.compose-spec", tmp_path / "compose.yaml")


def problems(schema: str, *files: Path) -> str:
    """What a schema has against these files."""
    command = [str(SCRIPTS / "check-jsonschema"), "--builtin-schema", schema, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


class TestSecrets:
    """None is in a file, and none gets into the image."""

    @pytest.mark.fault("a-secret-with-a-default")
    def test_what_is_secret_comes_from_outside_and_a_missing_one_is_named(self) -> None:
        """
        Every password, pepper and secret is a variable without a default, that compose refuses to start without.
        """
        text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
        named = set(re.findall(r"\$\{(\w+)", text))
        secret = [line for line in text.splitlines() if re.search(r"PASSWORD|PEPPER|SECRET|_URL|postgresql://", line)]

        assert named == SECRETS.keys()
        assert [line for line in secret if not re.search(r"\$\{\w+:\?|POSTGRES_DB|^ *#", line)] == []
        assert re.findall(r"\$\{\w+(?!\w|:\?)", text) == []

    def test_the_build_sees_only_what_is_copied(self, tmp_path: Path) -> None:
        """
        Whatever lies in a clone: .env, databases, a first token, environments.
        """
        shutil.copyfile(ROOT / ".dockerignore", tmp_path / ".dockerignore")
        wanted = ["pyproject.toml", "README.md", "src/onceward/cli/serve.py", "requirements/constraints.txt"]
        others = [
            ".env",
            "shop.db",
            "onceward-data/first-token",
            ".git/config",
            "src/onceward/__pycache__/a.pyc",
            "src/x.db",
        ]
        for name in (*wanted, *others):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()

        assert sorted(one.as_posix() for one in context(tmp_path)) == sorted(wanted)


@pytest.fixture(scope="module")
def image() -> Image:
    """The Dockerfile, carried out."""
    return carried_out(ROOT / "Dockerfile", ending.folder("onceward-image-"))


@dataclass
class Container:
    """A process in place of one."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    port: int = 0

    def call(self, method: str, path: str, document: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        return call(self.port, method, path, document, **headers)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            return self.call("GET", "/ready")[0] == 200
        except OSError:
            return False

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)


def call(port: int, method: str, path: str, document: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
    """One request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        heard = connection.getresponse()
        return heard.status, {name.lower(): value for name, value in heard.getheaders()}, heard.read()
    finally:
        connection.close()


def wait_until(what: Any) -> None:
    """Patiently."""
    ends = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.05)


@dataclass
class Composed:
    """What compose.yaml starts."""

    image: Image
    folder: Path
    url: str
    """Of the database, as an administrator."""
    started: dict[str, Container] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def variables(self, name: str) -> dict[str, str]:
        """The environment of a service, with secrets put in and hosts as they are here."""
        server = self.url.rpartition("@")[2].partition("/")[0]
        database = self.url.rpartition("/")[2]
        found = {}
        for key, value in COMPOSE["services"][name].get("environment", {}).items():
            filled = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda one: SECRETS[one[1]], str(value))
            found[key] = filled.replace("@postgres:5432/tenants", f"@{server}/{database}")
        return found

    def run(self, name: str, command: list[str] | None = None, **more: str) -> Container:
        """One service, or another command in its container."""
        service = COMPOSE["services"][name]
        for volume in service.get("volumes", []):
            source, target, _ = volume.split(":")
            place = self.image.root / target.lstrip("/")
            if not place.exists():
                shutil.copyfile(ROOT / source, place)
        log = self.folder / f"{name}.log"
        chosen = command or service.get("command") or self.image.command
        process = self.image.start(chosen, {**self.variables(name), **more}, log)
        return Container(name, process, log, self.ports.get(name, 0))

    def type(self, name: str, *command: str) -> str:
        """`docker compose exec`: what a command prints in a service's container."""
        made = self.run(name, list(command))
        assert made.process.wait(WAIT_SECONDS) == 0, made.log.read_text()[-2000:]
        return made.log.read_text()

    def start_replica(self, name: str) -> Container:
        """On a port and an address of its own: here they share a machine."""
        self.ports.setdefault(name, free_port())
        port = {"ONCEWARD_SERVE_PORT": str(self.ports[name]), "ONCEWARD_SERVE_HOST": "127.0.0.1"}
        self.started[name] = self.run(name, **port)
        wait_until(self.started[name].is_ready)
        return self.started[name]


@pytest.fixture(scope="module")
def composed(image: Image) -> Iterator[Composed]:
    """PostgreSQL, prepared by the service `prepare`; the two replicas."""
    if not postgres.wanted():
        pytest.skip("STORES leaves PostgreSQL out")
    server = postgres.running()
    server.execute("CREATE DATABASE composed")
    made = Composed(image, ending.folder("onceward-compose-"), server.url("composed"))
    admin = {"ADMIN_URL": made.url}  # This server asks for no password.
    prepare = made.run("prepare", **admin)
    assert prepare.process.wait(WAIT_SECONDS) == 0, prepare.log.read_text()
    for name in REPLICAS:
        made.start_replica(name)
    yield made
    for one in made.started.values():
        one.stop()
    server.execute("DROP DATABASE composed WITH (FORCE)")


@pytest.fixture(scope="module")
def token(composed: Composed) -> str:
    """As an operator makes one: in a replica's container, with nothing but what compose gives it."""
    composed.type("replica-1", "onceward", "tenant", "create", "acme")
    printed = composed.type("replica-1", "onceward", "token", "create", "--tenant", "acme", "--role", "admin")
    found = re.findall(r"ow_live_\w+", printed)
    assert found, printed
    return str(found[-1])


@pytest.mark.slow
class TestOneService:
    """The image by itself, with databases in its volume."""

    @pytest.mark.fault("an-image-that-runs-as-root", "an-image-that-is-killed-instead-of-stopped")
    def test_it_runs_as_nobody_in_particular_is_healthy_and_stops(self, image: Image) -> None:
        """
        What CMD says; unhealthy until it answers, healthy then; SIGTERM ends it with 0. Only its volume was written to.
        """
        before = {one for one in image.root.rglob("*") if one.is_file() and "var" not in one.parts}
        log = image.root.parent / "one.log"
        port = {"ONCEWARD_SERVE_PORT": str(free_port()), "ONCEWARD_SERVE_HOST": "127.0.0.1"}

        def health() -> int:
            checked = image.start(image.healthcheck, port, log.with_name("health.log"))
            return checked.wait(WAIT_SECONDS)

        unhealthy = health()
        process = image.start(image.command, port, log)
        wait_until(lambda: process.poll() is not None or health() == 0)
        process.send_signal(getattr(signal, image.stop_signal))
        code = process.wait(WAIT_SECONDS)
        after = {one for one in image.root.rglob("*") if one.is_file() and "var" not in one.parts}
        data = image.root / "var/lib/onceward/data"

        assert (unhealthy, code) == (1, 0), log.read_text()[-2000:]
        assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", image.user)
        assert (image.command, image.ports) == (["onceward", "serve"], ["8600"])
        assert after == before
        assert (data / "first-token").stat().st_mode & 0o777 == 0o600
        assert not any("pip" in one.name for one in (image.root / "opt/onceward/bin").iterdir())


@pytest.mark.slow
class TestCompose:
    """PostgreSQL, two replicas behind one address, a relay."""

    def test_a_key_that_ran_through_one_replica_replays_through_the_other(self, composed: Composed, token: str) -> None:
        """
        One row, one response; and neither has anything in its folder.
        """
        first, second = (composed.started[name] for name in REPLICAS)
        headers = {"Authorization": f"Bearer {token}"}
        place = "/v1/db/acme/shop"
        created = first.call("PUT", place, **headers)[0]
        table = {"sql": "CREATE TABLE events (id TEXT PRIMARY KEY)"}
        first.call("POST", f"{place}/query", table, **headers)
        insert = {"sql": "INSERT INTO events VALUES ('e-1')"}
        heard = [
            one.call("POST", f"{place}/query", insert, **headers, **{"Idempotency-Key": "k-1"})
            for one in (first, second)
        ]

        assert created == 201
        assert [(status, said.get("idempotency-replayed")) for status, said, _ in heard] == [(200, None), (200, "true")]
        assert heard[0][2] == heard[1][2]

    def test_one_address_for_both_also_while_one_is_gone(self, composed: Composed, token: str, tmp_path: Path) -> None:
        """
        A real nginx with the shipped file, only its addresses changed: both are asked; with one killed, the other
        answers.
        """
        if nginx.program() is None:
            pytest.skip("NOT TESTED HERE: no nginx on this machine, and none from Debian's packages")
        port, text = free_port(), (ROOT / "ops/compose/nginx.conf").read_text(encoding="utf-8")
        for name in REPLICAS:
            assert f"server {name}:8600;" in text
            text = text.replace(f"{name}:8600", f"127.0.0.1:{composed.ports[name]}")
        text = text.replace("listen 8600;", f"listen 127.0.0.1:{port};").replace("/tmp/", f"{tmp_path}/")
        text = text.replace("http {", f"http {{ {nginx.folders(tmp_path)}")
        (tmp_path / "nginx.conf").write_text(text)
        headers = {"Authorization": f"Bearer {token}"}

        def statuses(count: int) -> set[int]:
            return {call(port, "GET", "/v1/db/acme", None, **headers)[0] for _ in range(count)}

        with nginx.proxying(tmp_path / "nginx.conf", tmp_path) as proxy:
            wait_until(lambda: proxy.poll() is not None or answers(port))
            both = statuses(8)
            asked = [composed.started[name].log.read_text().count('/v1/db/acme"') for name in REPLICAS]
            composed.started["replica-1"].process.kill()
            composed.started["replica-1"].process.wait(WAIT_SECONDS)
            alone = statuses(8)
        composed.start_replica("replica-1")

        assert (both, alone) == ({200}, {200})
        assert min(asked) >= 1

    def test_the_relay_delivers_what_was_added_to_the_outbox(self, composed: Composed) -> None:
        """
        Its own command and variables; the address in relay.toml is a receiver here.
        """
        with Receiver(answer(200)) as receiver:
            (composed.image.root / "relay.toml").write_text(
                f'[endpoints.billing]\nkind = "http"\nurl = "http://127.0.0.1:{receiver.port}/hooks"\n'
                'secrets_env = ["BILLING_SECRET"]\nallow_http = true\nallow_private = ["127.0.0.1"]\n'
            )
            url = composed.variables("relay")["ONCEWARD_STORE"]
            with Gate(url, scope="live:shop") as gate, psycopg.connect(url) as connection:
                outbox = gate.outbox(connection)
                with connection.transaction():
                    outbox.add("billing", {"invoice": 7}, topic="invoice.paid")
            relay = composed.run("relay")
            wait_until(lambda: receiver.requests or relay.process.poll() is not None)
            code = relay.stop()

        assert code == 0, relay.log.read_text()[-2000:]
        assert [one.body for one in receiver.requests] == [b'{"invoice":7}']
        assert receiver.requests[0].headers["webhook-signature"].startswith("v1,")

    def test_a_replica_that_is_stopped_finishes_and_says_that_all_was_well(self, composed: Composed) -> None:
        """
        Exit code 0, within the time that compose gives it.
        """
        code = composed.started["replica-2"].stop()
        composed.start_replica("replica-2")
        grace = {one.get("stop_grace_period") for one in COMPOSE["services"].values() if one.get("image") == "onceward"}

        assert (code, grace) == (0, {"30s"})


def answers(port: int) -> bool:
    """Whether somebody answers there."""
    try:
        return call(port, "GET", "/health")[0] == 200
    except OSError:
        return False


def test_the_shipped_endpoints_are_ones_that_a_relay_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The example of ops/compose/relay.toml; its secrets are named in compose.yaml.
    """
    monkeypatch.setenv("BILLING_SECRET", SECRETS["BILLING_SECRET"])
    document = tomllib.loads((ROOT / "ops/compose/relay.toml").read_text(encoding="utf-8"))
    named = {name for one in document["endpoints"].values() for name in one["secrets_env"]}

    assert endpoints_from(document).keys() == {"billing"}
    assert named <= COMPOSE["services"]["relay"]["environment"].keys()
    assert os.environ["BILLING_SECRET"] not in (ROOT / "compose.yaml").read_text()
