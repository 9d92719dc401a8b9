"""What happens on the line itself, on two servers without a framework; and servers that are killed."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from shop_client import Client, new_key, shop


def everything(line: socket.socket) -> bytes:
    """What comes until the other side closes, however it does."""
    got = b""
    try:
        while piece := line.recv(65_536):
            got += piece
    except ConnectionError:
        return got
    return got


@pytest.mark.requirement("A05", "A06")
def test_a_replay_is_the_first_answer_on_every_server(bare: Client) -> None:
    """
    waitress and the standard library's own server alike.
    """
    key = new_key()
    first, again = bare.send("/charges", key, b"x"), bare.send("/charges", key, b"x")

    assert (first.status, again.status, first.replayed, again.replayed) == (201, 201, None, "true")
    assert first.body == again.body


def test_a_stream_is_replayed_on_every_server(bare: Client) -> None:
    """
    Whether the server knows chunks or ends the line.
    """
    key = new_key()
    first, again = bare.send("/stream/3", key), bare.send("/stream/3", key)

    assert (3, first.body, "true") == (first.body.count(b"data: "), again.body, again.replayed)


def test_half_a_body_runs_nothing(bare: Client) -> None:
    """
    The client says ten bytes, sends four and closes its half of the line.
    """
    key, before = new_key(), bare.effects("/echo")
    with bare.line() as line:
        line.sendall(bare.head("/echo", key, "Content-Length: 10") + b"four")
        line.shutdown(socket.SHUT_WR)
        got = everything(line)

    assert before == bare.effects("/echo")
    assert b" 200 " not in got
    assert bare.send("/echo", key, b"ten bytes.").status == 200  # The key is free: nothing was claimed.


def test_a_slow_body_is_given_up_where_it_is_read(bare: Client) -> None:
    """
    A byte now and then: after `upload_seconds_max` the answer is 408.
    """
    if bare.name != "wsgiref":
        pytest.skip("waitress reads the whole body before it calls the application")
    with bare.line() as line:
        line.sendall(bare.head("/quick/echo", new_key(), "Content-Length: 1000"))
        got = b""
        line.settimeout(0.02)
        for _ in range(500):
            try:
                got = line.recv(65_536)
                break
            except TimeoutError:
                line.sendall(b"x")

    assert b" 408 " in got
    assert bare.effects("/quick/echo") == 0


def test_a_chunked_body_is_refused_where_the_server_cannot_read_it(bare: Client) -> None:
    """
    wsgiref does not know chunks: every such body would look empty, and alike.
    """
    if bare.name != "wsgiref":
        pytest.skip("waitress reads chunks, and says so")
    before = bare.effects("/echo")
    with bare.line() as line:
        line.sendall(bare.head("/echo", new_key(), "Transfer-Encoding: chunked") + b"5\r\nchunk\r\n0\r\n\r\n")
        got = everything(line)

    assert b" 200 " not in got  # 400, unless the server has cut the line for the body that nobody read.
    assert before == bare.effects("/echo")


def test_a_header_of_a_megabyte_is_no_key(bare: Client) -> None:
    """
    Whoever refuses it, server or middleware: nothing runs, and the next request is served.
    """
    before = bare.effects("/echo")
    with bare.line() as line:
        with suppress(ConnectionError):
            line.sendall(bare.head("/echo", "x" * 1_000_000, "Content-Length: 0", "Connection: close"))
        got = everything(line)

    assert b" 200 " not in got
    assert before == bare.effects("/echo")
    assert bare.send("/echo", new_key()).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wsgi", "django-async"])
def test_a_server_killed_between_effect_and_record_leaves_it_in_doubt(name: str, tmp_path: Path) -> None:
    """
    kill -9 after the handler, before its answer is stored: the client hears nothing, and the next server knows better
    than to run it again.
    """
    key = new_key()
    with shop(name, tmp_path, "settle.before") as web, web.line() as line:
        line.sendall(web.head("/quick/charges", key, "Content-Length: 0"))
        heard = everything(line)

        assert web.process.wait(10) == -9
    with shop(name, tmp_path) as web:
        web.until(lambda: web.send("/quick/charges", key).code != "in_flight")
        got = web.send("/quick/charges", key)

        assert (heard, got.status, got.code) == (b"", 409, "in_doubt")
        assert web.effects("/quick/charges") == 1


@pytest.mark.slow
def test_a_server_killed_after_the_record_replays(tmp_path: Path) -> None:
    """
    kill -9 after the answer was stored, before the client heard of it: the retry gets that answer.
    """
    key = new_key()
    with shop("wsgi", tmp_path, "settle.after") as web, web.line() as line:
        line.sendall(web.head("/charges", key, "Content-Length: 0"))
        heard = everything(line)
    with shop("wsgi", tmp_path) as web:
        got = web.send("/charges", key)

        assert (heard, got.status, got.replayed) == (b"", 201, "true")
        assert web.effects("/charges") == 1
