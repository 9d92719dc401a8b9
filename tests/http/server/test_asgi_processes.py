"""Servers in processes of their own: killed, shut down, and of other makes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgi_support import SECONDS_MAX

from onceward import Gate

HERE = Path(__file__).resolve().parent

SERVERS = {
    "uvicorn": ["-m", "uvicorn", "shop_app:app", "--lifespan", "off", "--log-level", "warning", "--port", "{port}"],
    "hypercorn": ["-m", "hypercorn", "shop_app:app", "--bind", "127.0.0.1:{port}"],
    "granian": ["-m", "granian", "--interface", "asgi", "shop_app:app", "--port", "{port}"],
}


class Shop:
    """A server in its own process, on a folder."""

    def __init__(self, folder: Path, server: str = "uvicorn") -> None:
        self.folder, self._server = folder, server
        self._environment = {**os.environ, "SHOP": str(folder), "PYTHONPATH": str(HERE)}
        self.start()

    def start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        arguments = [one.format(port=self.port) for one in SERVERS[self._server]]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], env=self._environment, stdout=log, stderr=log, cwd=HERE
            )
        for _ in range(1_000):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.01)
        pytest.fail("the server did not come up")

    def post(self, key: str = "k", path: str = "/charges", body: bytes = b'{"amount":1}') -> httpx.Response:
        headers = {"idempotency-key": key, "content-type": "application/json"}
        with httpx.Client(transport=httpx.HTTPTransport(verify=False), timeout=SECONDS_MAX) as client:
            return client.post(f"http://127.0.0.1:{self.port}{path}", content=body, headers=headers)

    def effects(self) -> list[str]:
        file = self.folder / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def after_the_lease(self, guarantee: str) -> httpx.Response:
        """The first answer that is not "in flight"."""
        for _ in range(1_000):
            answer = self.post(guarantee, f"/{guarantee}")
            if answer.json().get("code") != "in_flight":
                return answer
            time.sleep(0.02)
        pytest.fail("it stays in flight")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[Any]:
    made: list[Shop] = []

    def make(**options: Any) -> Shop:
        made.append(Shop(tmp_path, **options))
        return made[-1]

    yield make
    for shop in made:
        shop.stop()


@pytest.mark.slow
def test_a_server_that_is_killed_between_effect_and_record(shops: Any, tmp_path: Path) -> None:
    """
    `kill -9`, then a new server on the same file. Blind: in doubt, not run again. Atomic: the same, because its COMMIT
    may have landed. Keyed: run again, under the same downstream key, so that the provider recognises it.
    """
    shop = shops()
    (tmp_path / "hold").touch()
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(shop.post, guarantee, f"/{guarantee}") for guarantee in ("blind", "atomic", "keyed")]
        while len(shop.effects()) < 3:
            time.sleep(0.01)
        shop.process.kill()
        assert all(isinstance(one.exception(SECONDS_MAX), httpx.TransportError) for one in asked)
    shop.process.wait(SECONDS_MAX)
    (tmp_path / "hold").unlink()
    shop.start()
    answers = {one: shop.after_the_lease(one) for one in ("blind", "atomic", "keyed")}

    assert {one: found.status_code for one, found in answers.items()} == {"blind": 409, "atomic": 409, "keyed": 201}
    assert {answers[one].json()["code"] for one in ("blind", "atomic")} == {"in_doubt"}
    effects = Counter(shop.effects())
    assert {one.split()[0]: count for one, count in effects.items()} == {"/blind": 1, "/atomic": 1, "/keyed": 2}
    assert shop.post("keyed", "/keyed").headers["idempotency-replayed"] == "true"


@pytest.mark.slow
def test_a_server_that_is_shut_down_finishes_what_it_began(shops: Any, tmp_path: Path) -> None:
    """
    SIGTERM while a request is in flight: it is answered and recorded, and then the server goes.
    """
    shop = shops()
    (tmp_path / "hold").touch()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(shop.post)
        while not shop.effects():
            time.sleep(0.01)
        shop.process.terminate()
        time.sleep(0.2)
        (tmp_path / "hold").unlink()
        first = asked.result(SECONDS_MAX)
    shop.process.wait(SECONDS_MAX)
    with Gate(f"sqlite:///{tmp_path / 'shop.db'}", scope="live:acme") as gate:
        record = gate.records.get("k")

    assert (first.status_code, len(shop.effects())) == (201, 1)
    assert record is not None
    assert ("settled", first.content) == (record.state, record.result.body)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["hypercorn", "granian"])
def test_it_works_under_every_server(server: str, shops: Any) -> None:
    """
    Fresh, replayed, reused, a body of megabytes, and what is published.
    """
    shop = shops(server=server)
    first, second, reused = shop.post(), shop.post(), shop.post(body=b"[]")
    large = [shop.post("large", body=b'"' + b"x" * 3_000_000 + b'"') for _ in range(2)]
    contract = httpx.get(f"http://127.0.0.1:{shop.port}/.well-known/idempotency", timeout=SECONDS_MAX)

    assert (201, b'{"charge":1,"bytes":12}') == (first.status_code, first.content) == (201, second.content)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
    assert [one.content for one in large] == [b'{"charge":2,"bytes":3000002}'] * 2
    assert len(shop.effects()) == 2
    assert contract.json()["keyHeader"] == "Idempotency-Key"
