"""HTTP on bare sockets: every read ends, whatever the other side does."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from reference_api import serving

from onceward import ConfigurationError
from onceward.testing.http_suite import CheckVerdict, describe, examine, raw_http
from onceward.testing.http_suite.raw_http import (
    NoTargetResponse,
    Origin,
    TargetConnection,
    TargetUnreachable,
    read_url,
)

SECONDS = 0.4


@contextmanager
def talking(act: Callable[[socket.socket], None]) -> Iterator[Origin]:
    """A server for one connection that does what it is told, and then hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            try:
                act(connection)
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield Origin("http", "127.0.0.1", listening.getsockname()[1])
    finally:
        listening.close()
        thread.join(5)


def drip(connection: socket.socket) -> None:
    """A byte now and then, for ever: each read succeeds, and the answer never ends."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        threading.Event().wait(0.02)


def saying(*parts: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: [connection.sendall(part) for part in parts] and None


def fetch(origin: Origin, method: str = "GET") -> raw_http.TargetResponse:
    connection = TargetConnection(origin, SECONDS)
    connection.send(f"{method} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return connection.read_response(method)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (drip, f"no response within {SECONDS:g} s"),
        (lambda connection: threading.Event().wait(SECONDS * 2) and None, f"no response within {SECONDS:g} s"),
        (saying(), "ended without a response"),
        (saying(b"SSH-2.0-hello\r\n\r\n"), "ended without a response"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), "before it was whole"),
        (saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal"), "before it was whole"),
        (saying(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 3000), "more than 2,000 bytes"),
    ],
    ids=["drips", "silent", "hangs up", "no http", "short", "short chunk", "too long"],
)
def test_no_whole_answer_is_an_error_in_bounded_time(
    act: Callable[[socket.socket], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A server that drips, hangs up, ends early or never ends is given up, and the reason is said.
    """
    monkeypatch.setattr(raw_http, "RESPONSE_BYTES_MAX", 2_000)

    with talking(act) as origin, pytest.raises(NoTargetResponse, match=says):
        fetch(origin)


def test_a_whole_answer_is_read_with_its_headers() -> None:
    """
    Chunks are put together; equal headers are joined; the body is there as bytes and as JSON.
    """
    head = b"HTTP/1.1 201 Created\r\nX-A: 1\r\nX-A: 2\r\nContent-Type: Application/JSON; charset=utf-8\r\n"
    chunks = b'Transfer-Encoding: chunked\r\n\r\n9\r\n{"code": \r\n5\r\n"no"}\r\n0\r\n\r\n'
    with talking(saying(head + chunks)) as origin:
        answer = fetch(origin)

    assert (
        answer.status,
        answer.body,
        answer.header("x-a"),
        answer.header("x-b"),
    ) == (201, b'{"code": "no"}', "1, 2", None)
    assert (answer.media_type, answer.code, str(answer)) == ("application/json", "no", "201 no")


def test_an_answer_without_a_body_ends_at_once() -> None:
    """
    HEAD has a length and no body.
    """
    with talking(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")) as origin:
        assert fetch(origin, "HEAD").body == b""


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("http://localhost:8000/orders", "http://localhost:8000", "/orders"),
        ("http://localhost", "http://localhost", "/"),
        ("https://api.example.com/v1/orders?a=1", "https://api.example.com", "/v1/orders?a=1"),
        ("http://[::1]:8000/x", "http://[::1]:8000", "/x"),
    ],
)
def test_an_address_is_read(url: str, origin: str, path: str) -> None:
    """
    The server, and the path with its query.
    """
    found = read_url(url)

    assert (origin, path) == (str(found[0]), found[1])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:8000/orders", "http://host:port/path"),
        ("ftp://localhost/", "http://host:port/path"),
        ("http:///orders", "http://host:port/path"),
        ("http://localhost:99999/", "not an address"),
        ("http://[x/", "not an address"),
        ("http://me:secret@localhost/", "--header"),
        ("http://höst/", "ASCII"),
        ("http://localhost/a b", "percent-escaped"),
        ("http://localhost/é", "percent-escaped"),
    ],
)
def test_what_is_no_address_is_refused(url: str, says: str) -> None:
    """
    With what an address looks like; credentials in it are not repeated.
    """
    with pytest.raises(ConfigurationError, match=says) as refused:
        read_url(url)

    assert "secret" not in str(refused.value)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this host, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return files


def test_https_is_spoken_and_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A certificate that nobody vouches for is refused; one that SSL_CERT_FILE vouches for is not.
    """
    trusted, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, key)
    with serving(tls=context) as (url, _):
        target = describe({"url": f"{url}/orders", "unique": "/id"}, {})
        with pytest.raises(TargetUnreachable, match=r"(?i)certificate"):
            examine(target)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        examination = examine(target, only=("replay-equal", "answer-lost", "crowd"))

    assert examination.named(CheckVerdict.HOLDS) == ["replay-equal", "answer-lost", "crowd"]
