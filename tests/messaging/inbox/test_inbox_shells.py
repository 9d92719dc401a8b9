"""Both colours of the inbox: sources that are rows, and work for the length of a block."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from inbox_support import SCOPE, TEXT, World, pacspace

from onceward import ConfigurationError
from onceward.messaging.inbox import AsyncInbox, Inbox, handler
from onceward.messaging.inbox.stored_sources import StoredSource
from onceward.messaging.webhooks import GitHub, PacSpace, StandardWebhooks

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "receive-webhooks.md"
PATIENCE_SECONDS = 60
STORED = StoredSource("hub", SCOPE, GitHub(), ("env:HUB_SECRET",), "shop:paid", "header:x-n", 3, 60.0, True)


@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_a_stored_source_is_written_read_and_listed(world: World, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    New, then replaced; with everything that was said about it; and its events are counted.
    """
    monkeypatch.setenv("HUB_SECRET", TEXT)
    opened = world.open(colour, scope=None, stored_sources=True)

    assert [opened.store_source(STORED), opened.store_source(STORED)] == [True, False]
    assert (opened.stored_source("hub"), opened.stored_source("nobody")) == (STORED, None)
    for id in ("d-1", "d-2"):  # The bytes are equal, and it was said that ids are to be trusted.
        opened.receive("hub", GitHub().sign(id, b"{}", [TEXT], now=0), b"{}")
    [view] = opened.sources()
    opened.close()

    assert (view.name, view.stored, view.events, view.renamed) == ("hub", STORED, 2, 0)


@pytest.mark.fault("the-loop-stands-still-while-workers-end")
def test_at_the_end_of_an_async_block_handlers_are_waited_for_and_the_loop_goes_on(tmp_path: Path) -> None:
    """
    The handler ends only when the loop does something: if leaving the block held the loop up, it would be left alone.
    """
    began, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    @handler(guarantee="repeatable")
    def slow(event: Any) -> None:
        began.set()
        if go_on.wait(PATIENCE_SECONDS):
            ended.append(event.id)

    async def play() -> list[str]:
        async with AsyncInbox(f"sqlite:///{tmp_path}/agent.db", scope=SCOPE) as inbox:
            inbox.add(pacspace(slow))
            body = b'{"event": "e-1"}'
            await inbox.receive("pac", PacSpace().sign("e-1", body, [TEXT], now=time.time()), body)
            async with inbox.working(1, stop_seconds=10):
                await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
                asyncio.get_running_loop().call_soon(go_on.set)
            return list(ended)

    assert asyncio.run(play()) == ["e-1"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("onceward-inbox-")]


@pytest.mark.fault("workers-go-on-when-their-block-is-thrown-away")
@pytest.mark.parametrize("colour", ["blocking", "awaiting"])
def test_a_block_that_is_thrown_away_waits_for_nobody_and_its_workers_end(tmp_path: Path, colour: str) -> None:
    """
    It may be the garbage collector that closes it: nothing can be awaited, and nothing is waited for. The handler that
    is under way comes to its end, and its worker takes nothing new.
    """
    began, go_on = threading.Event(), threading.Event()

    @handler(guarantee="repeatable")
    def slow(event: Any) -> None:
        began.set()
        go_on.wait(PATIENCE_SECONDS)

    def blocks(inbox: Any) -> Any:
        with inbox.working(1, stop_seconds=1e6):
            yield

    async def awaits(inbox: Any) -> None:
        async with inbox.working(1, stop_seconds=1e6):
            await asyncio.get_running_loop().create_future()

    async def play() -> bool:
        kind: type[Any] = AsyncInbox if colour == "awaiting" else Inbox
        inbox = kind(f"sqlite:///{tmp_path}/agent.db", scope=SCOPE)
        inbox.add(pacspace(slow))
        body = b'{"event": "e-1"}'
        received = inbox.receive("pac", PacSpace().sign("e-1", body, [TEXT], now=time.time()), body)
        await received if colour == "awaiting" else None
        thrown = awaits(inbox) if colour == "awaiting" else blocks(inbox)
        thrown.send(None)
        began.wait(PATIENCE_SECONDS)
        [worker] = [thread for thread in threading.enumerate() if thread.name.startswith("onceward-inbox-")]
        with suppress(RuntimeError):  # "coroutine ignored GeneratorExit", if this is broken.
            thrown.close()
        go_on.set()
        await asyncio.to_thread(worker.join, 30)
        ended = not worker.is_alive()
        closed = inbox.close()
        await closed if colour == "awaiting" else None
        return ended

    assert asyncio.run(play())


@pytest.mark.slow
def test_the_page_s_application_receives_processes_and_ends(tmp_path: Path) -> None:
    """
    The example for FastAPI as it is printed, under a real server: an event is answered, handled by its workers, known
    when it comes again; and the server ends in order when it is asked to.
    """
    [example] = re.findall(
        r"```python\n((?:(?!```).)*?lifespan=lifespan.*?)```", PAGE.read_text(encoding="utf-8"), re.S
    )
    (tmp_path / "shop_app.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "uvicorn", "shop_app:app", "--port", "0", "--app-dir", str(tmp_path)]
    with (tmp_path / "log").open("w+", encoding="utf-8") as log:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)
        try:
            address = until(lambda: re.search(r"running on (http://\S+)", (tmp_path / "log").read_text()), server)[1]
            answers = [delivered(address) for _ in range(2)]
            until(lambda: [one for one in views(tmp_path) if (one.events, one.waiting) == (1, 0)], server)
            os.kill(server.pid, signal.SIGTERM)
            code = server.wait(PATIENCE_SECONDS)
        finally:
            server.kill()
            server.wait()

    assert answers == [b'{"received": true}', b'{"received": true, "duplicate": true}']
    assert code in (0, -signal.SIGTERM)
    assert "Application shutdown complete" in (tmp_path / "log").read_text(encoding="utf-8")


def delivered(address: str) -> bytes:
    """Deliver one event, as its sender does."""
    body = b'{"invoice": "i-17"}'
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = StandardWebhooks().sign("evt_1", body, [secret], now=time.time())
    request = urllib.request.Request(f"{address}/hooks/billing", body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return bytes(answer.read())


def views(folder: Path) -> list[Any]:
    """What the application's inbox has."""
    with Inbox(f"sqlite:///{folder}/shop.db", scope="live:acme") as inbox:
        return inbox.sources()


def until(found: Any, server: subprocess.Popen[bytes]) -> Any:
    """Look until there is something, as long as the server lives."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (seen := found()):
        assert server.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    return seen


@pytest.mark.fault("a-refused-inbox-leaves-its-store-open")
@pytest.mark.parametrize("inbox", [Inbox, AsyncInbox], ids=lambda one: one.__name__)
@pytest.mark.parametrize("lease", [-1, "soon"])
def test_an_inbox_that_is_refused_has_opened_nothing(tmp_path: Path, inbox: Any, lease: Any) -> None:
    """
    What is wrong with its lease is said before its database is made.
    """
    with pytest.raises(ConfigurationError, match="lease"):
        inbox(f"sqlite:///{tmp_path}/inbox.db", scope="live:acme", lease=lease)

    assert list(tmp_path.iterdir()) == []
