"""HTTPS by the service itself: real certificates over real sockets, replaced while clients call; and behind a proxy."""

from __future__ import annotations

import datetime
import http.client
import http.server
import ipaddress
import signal
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from raw_http import RawConnection, log_lines, until
from service_support import Served

from onceward import ConfigurationError
from onceward.service.network.certificates import Certificates
from onceward.service.settings import load_settings

HOST = ipaddress.ip_address("127.0.0.1")
CLIENTS = 4


class Authority:
    """Issues certificates for this machine."""

    def __init__(self, folder: Path) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        self.file = folder / "authority.pem"
        made = self._certificate(self.name, self.key.public_key(), is_authority=True)
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def _certificate(self, name: x509.Name, key: Any, *, is_authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(HOST)]), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, name: str, password: bytes | None = None) -> tuple[bytes, bytes]:
        """A certificate and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._certificate(named, key.public_key(), is_authority=False)
        sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed
        )


class Files:
    """The pair of files that a service reads."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.authority = authority
        self.key.touch(mode=0o600)
        self.put(*authority.issue("first"))

    def put(self, certificate: bytes, key: bytes) -> None:
        """Each file in one step, as whoever renews certificates does."""
        for path, text in ((self.certificate, certificate), (self.key, key)):
            beside = path.with_suffix(".new")
            beside.touch(mode=0o600)
            beside.write_bytes(text)
            beside.replace(path)

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--tls-certificate", str(self.certificate), "--tls-key", str(self.key))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Files:
    return Files(tmp_path, authority)


@pytest.fixture
def secure(tmp_path: Path, files: Files) -> Iterator[Served]:
    served = Served.started(tmp_path, *files.flags, "--receive-seconds", "2")
    yield served
    served.stop()


def trusting(authority: Authority, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.maximum_version = newest
    return context


def connected(served: Served, authority: Authority) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(urlsplit(served.address).netloc, timeout=60, context=trusting(authority))


def shown_name(connection: http.client.HTTPSConnection) -> str:
    """The name in the certificate that a connection was shown."""
    found: Any = connection.sock.getpeercert()
    return str(next(value for part in found["subject"] for name, value in part if name == "commonName"))


def new_name(served: Served, authority: Authority) -> str:
    connection = connected(served, authority)
    connection.connect()
    name = shown_name(connection)
    connection.close()
    return name


@pytest.mark.fault("a-new-certificate-is-not-shown")
def test_a_new_certificate_is_shown_without_a_restart_and_no_call_fails(
    secure: Served, files: Files, authority: Authority
) -> None:
    """
    Clients that connect for each call, while the files are replaced five times: no call fails, by SIGHUP at once and
    by itself soon after. A connection that was there before keeps its certificate, and is served.
    """
    stop, failures, calls, kept = threading.Event(), [], [], []

    def run(*, keeps: bool) -> None:
        connection = connected(secure, authority)
        while not stop.is_set():
            try:
                connection.request("GET", "/health")
                answer = connection.getresponse()
                answer.read()
                calls.append(answer.status)
                if keeps:
                    kept.append(shown_name(connection))
                else:
                    connection.close()
            except (OSError, http.client.HTTPException) as error:
                failures.append(repr(error))
        connection.close()

    threads = [threading.Thread(target=run, kwargs={"keeps": number == 0}) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    until(lambda: kept)
    try:
        for number in range(5):
            files.put(*authority.issue(f"number {number}"))
            if number:  # The first is found by looking.
                secure.process.send_signal(signal.SIGHUP)
            until(lambda number=number: new_name(secure, authority) == f"number {number}")
            before = len(calls)
            until(lambda before=before: len(calls) > before + CLIENTS or failures)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)

    assert failures == []
    assert set(calls) == {200}
    assert set(kept) == {"first"}
    assert len(log_lines(secure, "the certificate was replaced")) == 5


@pytest.mark.fault("a-broken-certificate-ends-https")
@pytest.mark.parametrize("broken", ["no PEM", "another key", "a password", "gone", "for everybody"])
def test_files_that_cannot_be_used_leave_the_certificate_as_it_was(
    broken: str, files: Files, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It is told once for each change; a good pair after that is taken.
    """
    certificates = Certificates(str(files.certificate), str(files.key))
    first = certificates.context
    match broken:
        case "no PEM":
            files.put(b"no certificate", b"no key")
        case "another key":
            files.put(authority.issue("x")[0], authority.issue("y")[1])
        case "a password":
            files.put(*authority.issue("x", password=b"secret"))
        case "gone":
            files.key.unlink()
        case _:
            files.put(*authority.issue("x"))
            files.key.chmod(0o604)
    looks = [certificates.look() for _ in range(3)]
    kept = certificates.context is first
    files.put(*authority.issue("good"))

    assert looks == [False] * 3
    assert kept
    assert "the old one is still in use" in caplog.text
    assert certificates.failures == (3 if broken == "gone" else 1)
    assert certificates.look()
    assert certificates.context is not first


@pytest.mark.fault("a-key-for-everybody-is-taken")
@pytest.mark.parametrize("wrong", ["readable", "password", "one of them"])
def test_what_cannot_be_used_at_the_start_is_told(wrong: str, files: Files, authority: Authority) -> None:
    """
    A key that everybody can read, one with a password (nobody is asked for it), a certificate without a key.
    """
    if wrong == "readable":
        files.key.chmod(0o644)
    if wrong == "password":
        files.put(*authority.issue("x", password=b"secret"))

    with pytest.raises(ConfigurationError) as told:
        if wrong == "one of them":
            load_settings({"tls_certificate": str(files.certificate)}, {})
        Certificates(str(files.certificate), str(files.key))
    words = {"readable": "chmod o-rwx", "password": "cannot be used", "one of them": "both, or neither"}
    assert words[wrong] in str(told.value)


@pytest.mark.fault("old-tls-is-spoken")
def test_nothing_below_tls_1_2_is_spoken(secure: Served, files: Files, authority: Authority) -> None:
    """
    1.2 and 1.3 are, also where the system's OpenSSL would allow less.
    """
    where = urlsplit(secure.address)
    versions = []
    for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with (
            RawConnection(secure.address) as line,
            trusting(authority, newest).wrap_socket(line.socket, server_hostname=where.hostname) as wrapped,
        ):
            versions.append(wrapped.version())
    context = Certificates(str(files.certificate), str(files.key)).context

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert versions == ["TLSv1.2", "TLSv1.3"]


@pytest.mark.fault("handshakes-may-take-for-ever")
def test_a_handshake_that_does_not_end_is_ended_and_told(secure: Served, authority: Authority) -> None:
    """
    Silence, the beginning of one, and plain HTTP; others are served meanwhile.
    """
    lines = [RawConnection(secure.address) for _ in range(3)]
    lines[1].send(b"\x16\x03\x01\x02\x00\x01")
    lines[2].send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    name = new_name(secure, authority)
    ended = []
    for line in lines:
        line.socket.settimeout(20)  # Ten times what it takes.
        ended.append(line.has_ended())  # An alert may come first.
        line.close()

    assert name == "first"
    assert ended == [True] * 3
    assert len(until(lambda: told(secure, 3))) >= 3


def told(served: Served, count: int) -> list[Any]:
    found = log_lines(served, "a TLS handshake failed")
    return found if len(found) >= count else []


def test_a_large_body_and_its_response_go_through_tls(secure: Served, authority: Authority) -> None:
    """
    Four megabytes in, with backpressure below; most of one out.
    """
    path = "/v1/db/demo/tls"
    statuses = []
    connection = connected(secure, authority)
    headers = {"Authorization": f"Bearer {secure.token}", "Content-Type": "application/json"}
    long = '{"sql": "SELECT hex(zeroblob(400000)), length(?), length(?), length(?), length(?)", "params": [%s]}'
    body = long % ", ".join([f'"{"x" * 900_000}"'] * 4)
    for method, where, sent in (("PUT", path, None), ("POST", f"{path}/query", body)):
        connection.request(method, where, sent, headers)
        answer = connection.getresponse()
        statuses.append((answer.status, len(answer.read()) > 800_000))
    connection.close()

    assert statuses == [(201, False), (200, True)]


class Forwarding(http.server.BaseHTTPRequestHandler):
    """A proxy that ends TLS and tells the service who called, as nginx with `proxy_add_x_forwarded_for` does."""

    upstream: ClassVar[str]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        before = [self.headers["X-Forwarded-For"]] if "X-Forwarded-For" in self.headers else []
        headers = {name: value for name, value in self.headers.items() if name.lower() != "x-forwarded-for"}
        headers |= {"X-Forwarded-For": ", ".join((*before, self.client_address[0])), "X-Forwarded-Proto": "https"}
        connection.request("GET", self.path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_behind_a_proxy_that_ends_tls_callers_are_told_apart(
    tmp_path: Path, files: Files, authority: Authority
) -> None:
    """
    A flood from one address is slowed, whatever it writes into X-Forwarded-For; another address is not.
    """
    served = Served.started(tmp_path, "--trusted-proxies", "127.0.0.1", "--flood-burst", "3")
    handler = type("Here", (Forwarding,), {"upstream": urlsplit(served.address).netloc})
    proxy = http.server.ThreadingHTTPServer(("0.0.0.0", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    proxy.socket = context.wrap_socket(proxy.socket, server_side=True)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()

    def status(source: str, number: int = 0) -> int:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", proxy.server_port, timeout=60, context=trusting(authority), source_address=(source, 0)
        )
        connection.request("GET", "/v1/db/demo", headers={"X-Forwarded-For": f"198.51.100.{number % 250}"})
        found = connection.getresponse().status
        connection.close()
        return found

    try:
        slowed = until(lambda: any(status("127.0.0.2", number) == 429 for number in range(20)))
        other = status("127.0.0.3")
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(60)
        served.stop()

    assert slowed
    assert other == 401
