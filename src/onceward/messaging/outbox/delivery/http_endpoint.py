"""
Delivery over HTTP: a POST that is signed, goes where it was checked to go, and ends.

    resolve   the name's addresses, every one of which must be public (or of a network that was spoken)
    connect   to one of those addresses, never by the name again: it could mean something else by now
    secure    TLS for the name, which the certificate must have
    send      the payload's bytes, with id, time and signatures; no redirect is followed, no proxy asked
    read      the status; of the rest at most `answer_bytes_max`, and not for long

Under a relay a connection whose response was read to its end is kept for the next message (`kept_connections.py`).

Sockets and `http.client`'s reader of answers, because that is what can be held to an address, a moment and a number of
bytes; clients with pools resolve names by themselves, and start their timeouts anew with every byte.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal

from onceward._core.errors import ConfigurationError, OncewardError, TargetRefused
from onceward.messaging.outbox.delivery.deadline_socket import (
    Deadline,
    DeadlineSocket,
    Resolver,
    connect_to,
    resolve_host,
    system_addresses,
)
from onceward.messaging.outbox.delivery.kept_connections import KeptConnections
from onceward.messaging.outbox.delivery.validation import (
    UnsendableMessage,
    check_positive,
    header_problem,
    header_value_problem,
)
from onceward.messaging.outbox.delivery.webhook_response import WebhookResponse, outcome_of
from onceward.messaging.outbox.message import DeliveryFailed, DeliveryOutcome, DeliveryRefused, Message
from onceward.messaging.webhooks.signature_schemes import PacSpace, StandardWebhooks
from onceward.messaging.webhooks.signatures import (
    SIGNATURES_MAX,
    Secret,
    check_signing_secrets,
    read_secrets_of,
)
from onceward.messaging.webhooks.webhook_target import PORTS, check_addresses, parse_networks, parse_target
from onceward.runtime.environment import REAL, Environment

SECONDS_MAX: Final = 300.0
DRAIN_SECONDS: Final = 1.0
"""How long the rest of a response is read once its status is known, so that the receiver can finish sending."""
PROBLEM_BYTES: Final = 8_192
"""How much of a response's body is searched for a problem's code."""
INTERIM_MAX: Final = 16
"""Interim responses (100, 103) that are skipped before the final one."""

FORMS: Final[dict[str, tuple[StandardWebhooks | PacSpace, str]]] = {
    "standard": (StandardWebhooks(), "webhook-topic"),
    "pacspace": (PacSpace(), "x-webhook-event"),
}
"""How ids and signatures are written, and the header of the topic."""


class HttpEndpoint:
    """
    A webhook's receiver.

    `secrets` sign every try: two of them while one is being replaced. A payload goes out unsigned only if `unsigned`
    is spoken; to a network inside only if it is in `allow_private`; without TLS only with `allow_http`.
    """

    def __init__(
        self,
        url: str,
        *,
        secrets: Iterable[Secret | str] = (),
        unsigned: bool = False,
        form: Literal["standard", "pacspace"] = "standard",
        headers: Mapping[str, str] | None = None,
        final: Collection[int] = (),
        allow_private: Iterable[str] = (),
        allow_http: bool = False,
        ports: Collection[int] = PORTS,
        seconds: float = 15.0,
        connect_seconds: float = 5.0,
        payload_bytes_max: int = 1_048_576,
        answer_bytes_max: int = 65_536,
        tls: ssl.SSLContext | None = None,
        resolver: Resolver = system_addresses,
        environment: Environment = REAL,
    ) -> None:
        self._inside = parse_networks(allow_private)
        self._target = parse_target(url, ports=ports, plain=allow_http, inside=bool(self._inside))
        if form not in FORMS:
            raise ConfigurationError(f"form is one of {', '.join(FORMS)}")
        self._form, self._topic_header = FORMS[form]
        self._secrets = _secrets(secrets, self._form, unsigned=unsigned)
        self._headers = dict(headers or {})
        if wrong := header_problem(self._headers):
            raise ConfigurationError(wrong)
        self._final = frozenset(final)
        if not all(isinstance(one, int) and 300 <= one <= 599 and one != 410 for one in self._final):
            raise ConfigurationError("final must contain statuses from 300 to 599; 410 has its own meaning")
        self._seconds = check_positive("seconds", seconds, SECONDS_MAX)
        self._connect_seconds = check_positive("connect_seconds", connect_seconds, SECONDS_MAX)
        self._payload_bytes_max = int(check_positive("payload_bytes_max", payload_bytes_max, 2**30))
        self._answer_bytes_max = int(check_positive("answer_bytes_max", answer_bytes_max, 2**24))
        self._tls = (tls or ssl.create_default_context()) if self._target.secure else None
        if self._tls is not None and (self._tls.verify_mode != ssl.CERT_REQUIRED or not self._tls.check_hostname):
            raise ConfigurationError(
                "this TLS context does not check certificates and names; add your CA to one that does"
            )
        self._resolver = resolver
        self._environment = environment
        self._kept = KeptConnections(environment)

    def __repr__(self) -> str:
        # Without the path and the query: some receivers have their secret there.
        return f"HttpEndpoint({'https' if self._target.secure else 'http'}://{self._authority})"

    @property
    def seconds_max(self) -> float:
        """How long a try may take: name, connection, TLS, sending and answer together."""
        return self._seconds

    def hold_connections(self, many: int) -> None:
        """Keep up to so many connections open between two messages, until `release_connections`. A relay does this."""
        self._kept.hold(many)

    def release_connections(self, many: int) -> None:
        """Undo one `hold_connections`."""
        self._kept.release(many)

    def deliver(self, message: Message) -> DeliveryOutcome:
        """Try once."""
        deadline = Deadline(self._environment, self._seconds)
        try:
            request = self._request(message)
        except (OncewardError, UnsendableMessage) as error:
            return DeliveryRefused(f"this message cannot be sent: {error}")
        stage = "answer"
        try:
            if (kept := self._kept.take()) is not None:
                kept.begin_anew(deadline)
                try:
                    return self._exchange(kept, request, deadline)
                except TimeoutError:
                    raise
                except (OSError, http.client.HTTPException):
                    # Hung up while it was idle, as receivers do at any time. Should the message have arrived all the
                    # same, then its receiver knows the id.
                    if kept.has_heard:
                        raise
            stage = "address"
            found = resolve_host(self._resolver, self._target.host, self._target.port, deadline)
            addresses = check_addresses(found, self._inside)
            stage = "connection"
            connecting = deadline.sooner(self._connect_seconds)
            line = connect_to(
                addresses, self._target.port, connecting=connecting, deadline=connecting,
                bytes_max=self._answer_bytes_max,
            )  # fmt: skip
            try:
                if self._tls is not None:
                    line.secure(self._tls, self._target.host)
                stage, line.deadline = "answer", deadline
            except BaseException:
                line.close()
                raise
            return self._exchange(line, request, deadline)
        except TargetRefused as error:
            return DeliveryFailed(f"{error}; nothing was sent")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return DeliveryFailed(_failure_reason(error, stage))

    def _exchange(self, line: DeadlineSocket, request: bytes, deadline: Deadline) -> DeliveryOutcome:
        """Send and read, and then keep the connection or close it."""
        whole, is_reusable = True, False
        try:
            try:
                line.sendall(request)
            except (BrokenPipeError, ConnectionResetError):
                whole = False  # Some answer 413 and hang up before they have read all of it; that is worth reading.
            answer, is_reusable = _read_response(line, deadline)
        finally:
            if is_reusable and whole and self._kept.keeps:
                self._kept.give_back(line)
            else:
                line.close()
        if not whole and 200 <= answer.status < 300:
            return DeliveryFailed(
                f"the receiver answered {answer.status} and closed the connection before it had the whole message"
            )
        return outcome_of(answer, self._final, self._environment.wall_us())

    @property
    def _authority(self) -> str:
        host = f"[{self._target.host}]" if ":" in self._target.host else self._target.host
        return host if self._target.port == (443 if self._target.secure else 80) else f"{host}:{self._target.port}"

    def _request(self, message: Message) -> bytes:
        """The bytes of this try. The id is the message's; the time, and with it the signature, are the try's."""
        if len(message.payload) > self._payload_bytes_max:
            raise UnsendableMessage(
                f"its payload has {len(message.payload)} bytes, and this endpoint takes {self._payload_bytes_max}: "
                "send a reference instead, or raise payload_bytes_max"
            )
        own = dict(message.headers)
        content = {"Content-Type": message.content_type, self._topic_header: message.topic}
        if wrong := header_problem(own) or header_value_problem(content):
            raise UnsendableMessage(wrong)
        signed = self._form.sign(
            message.id, message.payload, self._secrets, now=self._environment.wall_us() // 1_000_000
        )
        headers = {
            "Host": self._authority,
            "User-Agent": "onceward",
            "Accept": "*/*",
            "Connection": "" if self._kept.keeps else "close",
            "Content-Length": str(len(message.payload)),
            **content,
        }
        given = {name.lower(): value for name, value in (*own.items(), *self._headers.items())}
        kept = {name: value for name, value in headers.items() if name.lower() not in given}
        lines = [f"{name}: {value}\r\n" for name, value in (kept | given | signed).items() if value != ""]
        return f"POST {self._target.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("ascii") + message.payload


class _Stream:
    """What `HTTPResponse` wants of a socket, for several answers in a row on one line."""

    def __init__(self, line: DeadlineSocket) -> None:
        self._file = line.makefile()

    def makefile(self, *_: Any) -> Any:
        return self._file


def _read_response(line: DeadlineSocket, deadline: Deadline) -> tuple[WebhookResponse, bool]:
    """The first answer that is one; of its body, what comes soon; and whether the connection can be used again."""
    stream = _Stream(line)
    for _ in range(INTERIM_MAX):
        response = http.client.HTTPResponse(stream, method="POST")  # type: ignore[arg-type]
        response.begin()
        if line.ended:  # In the middle of the headers, which `begin` takes for their end.
            raise http.client.RemoteDisconnected("in the middle of its headers")
        if 100 <= response.status < 200 and response.status != 101:
            response.fp = None  # type: ignore[assignment] # Else its end would be the end of the line's file.
            continue
        body, is_reusable = b"", False
        try:
            line.deadline = deadline.sooner(DRAIN_SECONDS)
            body = response.read(PROBLEM_BYTES)
            while response.read(PROBLEM_BYTES):
                pass
            is_reusable = response.status != 101 and not response.will_close and not line.ended
        except (OSError, ValueError, http.client.HTTPException):
            pass  # The status is known: what becomes of the rest changes nothing.
        finally:
            headers = response.getheaders()
            response.close()
        return WebhookResponse(response.status, headers, body), is_reusable
    raise http.client.HTTPException("too many interim responses")


def _failure_reason(error: Exception, stage: str) -> str:
    """A failure in words of ours: what a receiver or a library says is not repeated, it could be anything."""
    after = "; the message may have arrived" if stage == "answer" else ""
    if isinstance(error, TimeoutError):
        return f"no {stage} in time{after}"
    if stage == "address":
        return "the receiver's name cannot be resolved"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the receiver's certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__}){after}"
    if isinstance(error, http.client.RemoteDisconnected):
        return f"the receiver closed the connection without an answer{after}"
    if isinstance(error, OSError):
        return f"{'the connection failed' if stage == 'connection' else 'no whole answer'} ({_errno(error)}){after}"
    return f"the receiver's answer is not HTTP ({type(error).__name__}){after}"


def _errno(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _secrets(given: Iterable[Secret | str], form: StandardWebhooks | PacSpace, *, unsigned: bool) -> tuple[Secret, ...]:
    found = tuple(read_secrets_of(given, form.secret))
    if not found and not unsigned:
        raise ConfigurationError(
            "a webhook needs a secret, so that its receiver can tell who sent it: secrets=[...]; or set unsigned=True"
        )
    if found and unsigned:
        raise ConfigurationError("unsigned and secrets cannot be combined")
    if len(found) > SIGNATURES_MAX:
        raise ConfigurationError(f"receivers try {SIGNATURES_MAX} signatures at most; two secrets are enough to rotate")
    return tuple(check_signing_secrets(list(found)))
