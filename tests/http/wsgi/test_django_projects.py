"""Django as people use it: users and sessions, ATOMIC_REQUESTS, uploads, decorators; under WSGI and under ASGI."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from shop_client import Client, Got, new_key


def as_user(project: Client, name: str) -> dict[str, str]:
    """The cookie of somebody who has logged in."""
    cookie = project.send(f"/login/{name}", method="GET").header("set-cookie") or ""
    return {"Cookie": cookie.partition(";")[0]}


def send(project: Client, path: str, key: str | None, user: str = "ann", body: bytes = b"", **more: str) -> Got:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return project.send(path, key, body, as_user(project, user) | named)


def charges(project: Client) -> int:
    found: Any = json.loads(send(project, "/charge/well", new_key()).body)["charges"]
    return int(found)


@pytest.mark.requirement("A28")
def test_the_scope_is_the_user_who_is_logged_in(project: Client) -> None:
    """
    Sessions and users are known where the middleware stands; each user has keys of their own.
    """
    key = new_key()
    ann, again, bob = (send(project, "/charge/well", key, user) for user in ("ann", "ann", "bob"))

    assert (json.loads(ann.body)["user"], json.loads(bob.body)["user"]) == ("ann", "bob")
    assert (ann.body, "true") == (again.body, again.replayed)
    assert bob.replayed is None


def test_whoever_is_not_logged_in_runs_nothing(project: Client) -> None:
    """
    No user, no scope: 401, and the log says what to do.
    """
    got = project.send("/charge/well", new_key())

    assert (got.status, got.code) == (401, "scope_missing")
    assert "scope function did not say who is calling" in project.log


def test_a_view_that_raises_is_rolled_back_and_may_be_sent_again(project: Client) -> None:
    """
    ATOMIC_REQUESTS and guarantee="atomic": row and key are both gone after the failure.
    """
    key, before = new_key(), charges(project)
    first, again = send(project, "/charge/raise", key), send(project, "/charge/raise", key)

    assert (first.status, again.status) == (500, 500)
    assert before + 1 == charges(project)


@pytest.mark.fault("a-5xx-that-is-committed-was-rolled-back")
def test_a_view_that_returns_a_500_has_committed_and_is_in_doubt(project: Client) -> None:
    """
    ATOMIC_REQUESTS commits what returns, whatever its status: nothing says that it was rolled back.
    """
    key, before = new_key(), charges(project)
    first, again = send(project, "/charge/return500", key), send(project, "/charge/return500", key)

    assert (first.status, again.status, again.code) == (500, 409, "in_doubt")
    assert before + 2 == charges(project)
    assert "ATOMIC_REQUESTS commits whatever a view returns" in project.log


def form(boundary: str, size: int) -> bytes:
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="to"\r\n\r\nx\r\n'.encode(),
        f'--{boundary}\r\nContent-Disposition: form-data; name="scan"; filename="a.bin"\r\n'.encode(),
        b"Content-Type: application/octet-stream\r\n\r\n" + b"z" * size + f"\r\n--{boundary}--\r\n".encode(),
    ]
    return b"".join(parts)


def test_uploads_reach_the_view_whatever_their_size_and_boundary(project: Client) -> None:
    """
    What was hashed on arrival is still there for `request.FILES` and `request.POST`; a retry's boundary is another one.
    """
    key, before = new_key(), project.effects("/upload")

    def sent(boundary: str, size: int) -> Got:
        kind = f"multipart/form-data; boundary={boundary}"
        return send(project, "/upload", key, body=form(boundary, size), Content_Type=kind)

    first, again, other = sent("one", 50_000), sent("another", 50_000), sent("one", 50_001)

    assert json.loads(first.body) == {"files": {"scan": ["a.bin", 50_000]}, "fields": {"to": "x"}}
    assert (first.body, "true") == (again.body, again.replayed)
    assert other.code == "key_reused"
    assert before + 1 == project.effects("/upload")


def test_a_body_that_django_keeps_may_have_been_read_before(project: Client) -> None:
    """
    A middleware above that has read `request.body` does no harm.
    """
    key = new_key()
    first, again = (send(project, "/upload", key, body=b"hello", X_Read="body") for _ in range(2))
    other = send(project, "/upload", key, body=b"other", X_Read="body")

    assert (first.status, again.replayed, other.code) == (200, "true", "key_reused")


def test_a_body_that_is_gone_runs_nothing(project: Client) -> None:
    """
    An upload that another middleware has taken cannot be compared: 500, and the log says what to move.
    """
    before = project.effects("/upload")
    kind = "multipart/form-data; boundary=b"
    got = send(project, "/upload", new_key(), body=form("b", 10), X_Read="post", Content_Type=kind)

    assert (got.status, got.code) == (500, "configuration")
    assert before == project.effects("/upload")
    assert "move onceward.http.django.IdempotencyMiddleware above" in project.log


def test_a_file_is_replayed_when_it_is_gone(project: Client) -> None:
    """
    A FileResponse is kept like any other answer, with its length and its name.
    """
    key, before = new_key(), project.effects("/file")
    first = send(project, "/file", key)
    (project.folder / "report").unlink()
    again = send(project, "/file", key)

    assert (first.body, first.header("content-length")) == (b"report " * 100, "700")
    assert (first.body, "true") == (again.body, again.replayed)
    assert first.header("content-disposition") == again.header("content-disposition")
    assert before + 1 == project.effects("/file")


def test_a_view_may_be_left_out(project: Client) -> None:
    """
    @not_idempotent: its requests pass, whatever they carry.
    """
    key = new_key()
    found = [send(project, "/loud", key) for _ in range(2)]

    assert len({got.body for got in found}) == 2


def test_a_view_may_have_terms_of_its_own(project: Client) -> None:
    """
    @idempotent on a class's dispatch: a key is needed here, and a failure leaves it in doubt.
    """
    key, before = new_key(), project.effects("/strict")
    without = send(project, "/strict", None)
    first, again = send(project, "/strict", key), send(project, "/strict", key)

    assert (without.status, without.code) == (400, "key_missing")
    assert (first.status, again.status, again.code) == (500, 409, "in_doubt")
    assert before + 1 == project.effects("/strict")


WRONG = """
import sys
from django.conf import settings
from onceward import AsyncGate, Gate, OncewardError
settings.configure()
from onceward.http.django import IdempotencyMiddleware, idempotent

async def awaiting(request): ...

def blocking(request): ...

gate, agate = Gate("memory://", scope="test:a"), AsyncGate("memory://", scope="test:a")
for get_response, said in [
    (blocking, None),
    (blocking, {"SCOPE": "test:a"}),
    (blocking, {"SCOPE": "test:a", "GATE": agate}),
    (awaiting, {"SCOPE": "test:a", "ASYNC_GATE": gate}),
    (blocking, {"GATE": gate}),
    (blocking, {"SCOPE": "test:a", "GATE": gate, "REQUIRE_KEYS": True}),
    (blocking, {"SCOPE": "test:a", "GATE": gate, "TRANSACTIONAL": True}),
]:
    settings.ONCEWARD = said
    try:
        IdempotencyMiddleware(get_response)
    except OncewardError as error:
        print(error.code, error)
try:
    idempotent(guarantee="certain")
except OncewardError as error:
    print(error.code, error)
settings.ONCEWARD = {"SCOPE": "test:a", "GATE": lambda: gate}
IdempotencyMiddleware(blocking), IdempotencyMiddleware(awaiting)
"""


def test_settings_that_cannot_work_are_refused_at_the_start() -> None:
    """
    No gate, a gate of the wrong colour, no scope, an unknown name: told before the first request. A blocking gate alone
    serves both kinds of views.
    """
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=False, timeout=60)
    told = done.stdout.splitlines()

    assert done.stderr == ""
    assert [line.split()[0] for line in told] == ["configuration"] * 4 + ["scope_missing"] + ["configuration"] * 3
    assert 'ONCEWARD["GATE"] is of type NoneType. Give the path of your Gate' in told[0]
    assert 'ONCEWARD["ASYNC_GATE"] is of type Gate. Give the path of your AsyncGate' in told[3]
    assert "require_keys" in told[5]


LEAVING = """
import asyncio, logging
import django
from django.conf import settings
from django.http import StreamingHttpResponse
from django.urls import path
from onceward import AsyncGate

ended = []

async def pieces():
    try:
        for number in range(5):
            yield b"piece %d;" % number
    finally:
        ended.append(True)

async def view(request):
    return StreamingHttpResponse(pieces())

urlpatterns = [path("stream", view)]
agate = AsyncGate("memory://", scope="test:a")
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"],
    ONCEWARD={"ASYNC_GATE": agate, "SCOPE": "test:a"},
)
django.setup()
from django.core.asgi import get_asgi_application

app = get_asgi_application()
scope = {"type": "http", "method": "POST", "path": "/stream", "raw_path": b"/stream", "query_string": b"",
         "headers": [(b"host", b"shop"), (b"idempotency-key", b"k"), (b"content-length", b"0")]}

async def serve(stuck):
    sent, blocked = [], asyncio.Event()
    messages = [{"type": "http.request", "body": b""}]

    async def receive():
        if messages:
            return messages.pop()
        await blocked.wait()
        await asyncio.sleep(0.05)  # The view fills the queue meanwhile, and waits for room.
        return {"type": "http.disconnect"}

    async def send(message):
        if stuck and message.get("body"):
            blocked.set()
            await asyncio.Event().wait()
        sent.append(message.get("body", b""))

    await asyncio.wait_for(app(scope, receive, send), 5)
    return b"".join(sent)

async def main():
    first = await serve(stuck=True)
    print(first, ended, len(asyncio.all_tasks()))
    blocked = await serve(stuck=False)
    print(blocked)

asyncio.run(main())
"""


def test_a_reader_that_leaves_while_a_piece_waits_for_it_leaves_no_task_behind() -> None:
    """
    Its request is cancelled in the middle of a `send`: the view is read to its end, and Django's handler comes back.
    """
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, check=False, timeout=60)

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["b'' [True] 1", "b'piece 0;piece 1;piece 2;piece 3;piece 4;'"]
