"""
The documented CORS set-up, run by a real browser: it sends a key to another origin, and reads what the answer says.

The Python and the JavaScript are those of `docs/how-to/add-to-fastapi.md`; only the origin is another one.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from servers.chromium import Chromium, browser

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/add-to-fastapi.md"
ORIGIN = "https://shop.example"
SECONDS_MAX = 30


def block(kind: str, mark: str) -> str:
    """The block of this kind on the page that has this text in it."""
    found = [
        one for one in re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL) if mark in one
    ]
    assert len(found) == 1, f"one block of {kind} with {mark} is expected, and there are {len(found)}"
    return str(found[0])


class Front(BaseHTTPRequestHandler):
    """The shop's own page: another origin than the API's."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>shop</title>")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def front() -> Iterator[str]:
    """The origin of the page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Api:
    """The page's own example on a real socket."""

    def __init__(self, source: str) -> None:
        self.names: dict[str, Any] = {"__name__": "documented"}
        exec(compile(source, str(PAGE), "exec"), self.names)
        self.charges: list[int] = []
        self.entered, self.go = threading.Event(), threading.Event()
        self.names["provider_charge"] = self.charge
        self._server = uvicorn.Server(
            uvicorn.Config(self.names["app"], port=0, lifespan="off", log_config=None, ws="none")
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()), daemon=True)
        self._thread.start()
        for _ in range(SECONDS_MAX * 100):
            if self._server.started:
                break
            threading.Event().wait(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    async def charge(self, amount: int) -> str:
        self.charges.append(amount)
        self.entered.set()
        if amount == 409:
            await asyncio.to_thread(self.go.wait, SECONDS_MAX)
        return f"ch_{len(self.charges)}"

    def stop(self) -> None:
        self.go.set()
        self._server.should_exit = True
        self._thread.join(SECONDS_MAX)


@pytest.fixture
def api(front: str) -> Iterator[Api]:
    """The API, which allows the page's origin."""
    api = Api(block("python", "CORSMiddleware").replace(ORIGIN, front))
    yield api
    api.stop()


@pytest.fixture(scope="module")
def chromium(front: str) -> Iterator[Chromium]:
    """A browser that shows the page."""
    with browser() as chromium:
        chromium.open(f"{front}/")
        yield chromium


def charged(chromium: Chromium, api: Api, amount: int, key: str, times: int = 1) -> Any:
    """What the page's own JavaScript sees."""
    script = block("js", "async function charge")
    calls = ", ".join([f'await charge("{api.url}", {amount}, "{key}")'] * times)
    return chromium.run(f"{{ {script}; return [{calls}]; }}")


def test_a_browser_sends_the_key_and_sees_the_replay(chromium: Chromium, api: Api) -> None:
    """
    POST with Idempotency-Key from another origin: allowed, run once, and the marker of the replay can be read.
    """
    first, again = charged(chromium, api, 1250, "o-17", times=2)

    assert (first["status"], first["replayed"], again["status"], again["replayed"]) == (201, False, 201, True)
    assert first["body"] == again["body"] == {"charge": "ch_1"}
    assert api.charges == [1250]


def test_a_browser_sees_the_refusal_and_how_long_to_wait(chromium: Chromium, api: Api) -> None:
    """
    409 while the first one runs, with a Retry-After that JavaScript can read.
    """
    script = block("js", "async function charge")
    chromium.run(f'{{ {script}; window.first = charge("{api.url}", 409, "busy"); }}')
    assert api.entered.wait(SECONDS_MAX)
    (during,) = charged(chromium, api, 409, "busy")
    api.go.set()
    first = chromium.run("{ return await window.first; }")

    assert (during["status"], during["body"]["code"]) == (409, "in_flight")
    assert int(during["retryAfter"]) >= 1
    assert (first["status"], first["replayed"]) == (201, False)


def test_without_the_set_up_the_same_browser_cannot(chromium: Chromium, front: str) -> None:
    """
    The negative control: with the origin alone allowed, the browser does not even send it.
    """
    source = block("python", "CORSMiddleware").replace(ORIGIN, front)
    source = re.sub(r"\n    (allow_methods|allow_headers|expose_headers)=[^\n]*", "", source)
    api = Api(source)
    try:
        with pytest.raises(AssertionError, match="Failed to fetch"):
            charged(chromium, api, 1250, "o-18")
    finally:
        api.stop()

    assert api.charges == []


@pytest.mark.fault("the-documented-cors-hides-the-replay")
def test_the_documented_set_up_allows_the_key_and_exposes_the_marks(front: str) -> None:
    """
    The same without a browser, for machines that have none: what the preflight allows, and what the answer exposes.
    """
    from starlette.testclient import TestClient

    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(block("python", "CORSMiddleware"), str(PAGE), "exec"), names)
    client = TestClient(names["app"], headers={"Origin": ORIGIN})
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,idempotency-key",
    }
    preflight = client.options("/charges", headers=asked)
    answer = client.post("/charges", json={"amount": 1}, headers={"Idempotency-Key": "k"})
    exposed = answer.headers.get("access-control-expose-headers", "").split(", ")

    assert preflight.status_code == 200, preflight.text
    assert {"Idempotency-Replayed", "Idempotency-Stored", "Retry-After"} <= set(exposed)
