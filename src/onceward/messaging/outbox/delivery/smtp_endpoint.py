"""
Delivery by mail: one mail per message, to a mail server that you run or rent.

    before MAIL        connection, greeting, TLS, login: trouble there is the endpoint's, and the message waits
    MAIL, RCPT, DATA   a 4yz answer fails (tried again), a 5yz answer refuses; every recipient must be taken, or
                       nobody gets the mail: else those who were taken would get it again with every try
    after the end      250: delivered. No answer: it may have arrived, and it is sent again under the same Message-ID
"""

from __future__ import annotations

import smtplib
import ssl
from typing import Any, Final, Literal

from onceward._core.errors import ConfigurationError
from onceward.messaging.outbox.delivery.deadline_socket import (
    Deadline,
    DeadlineSocket,
    Resolver,
    connect_to,
    resolve_host,
    system_addresses,
)
from onceward.messaging.outbox.delivery.mail import Mail, is_address, mail_of
from onceward.messaging.outbox.delivery.validation import UnsendableMessage, check_positive
from onceward.messaging.outbox.message import (
    Delivered,
    DeliveryFailed,
    DeliveryOutcome,
    DeliveryRefused,
    Message,
)
from onceward.runtime.environment import REAL, Environment

SECONDS_MAX: Final = 300.0
REPLY_BYTES_MAX: Final = 65_536
"""Of everything that the server says in one session: its answers are lines."""
PORTS: Final = {"starttls": 587, "implicit": 465, "none": 25}
SESSION_CODES: Final = frozenset({421, 530, 534, 535, 538})
"""The server closes, or wants another login or TLS: nothing that is the mail's fault."""


class SmtpEndpoint:
    """
    A mail server.

    `tls` is "starttls" (the default, and required then), "implicit", or "none", which has to be spoken and takes no
    login. The server is yours: its address is not checked as a webhook's is.
    """

    def __init__(
        self,
        host: str,
        *,
        sender: str,
        port: int | None = None,
        tls: Literal["starttls", "implicit", "none"] = "starttls",
        user: str | None = None,
        password: str | None = None,
        helo: str = "localhost",
        seconds: float = 30.0,
        connect_seconds: float = 10.0,
        payload_bytes_max: int = 10_485_760,
        context: ssl.SSLContext | None = None,
        resolver: Resolver = system_addresses,
        environment: Environment = REAL,
    ) -> None:
        if tls not in PORTS:
            raise ConfigurationError(f"tls is one of {', '.join(PORTS)}")
        if not is_address(sender):
            raise ConfigurationError("sender is a mail address such as shop@example.com, without a name before it")
        if (user is None) != (password is None):
            raise ConfigurationError("a login has a user and a password")
        if user is not None and tls == "none":
            raise ConfigurationError("a login is not sent in the clear: use tls = starttls or implicit")
        for name, text in (("host", host), ("helo", helo)):
            if not text or not text.isascii() or not text.isprintable() or " " in text:
                raise ConfigurationError(f"{name} is the name of a host")
        self._host, self._helo, self._sender, self._mode = host, helo, sender, tls
        self._port = int(check_positive("port", PORTS[tls] if port is None else port, 65_535))
        self._login = None if user is None or password is None else (user, password)
        self._seconds = check_positive("seconds", seconds, SECONDS_MAX)
        self._connect_seconds = check_positive("connect_seconds", connect_seconds, SECONDS_MAX)
        self._payload_bytes_max = int(check_positive("payload_bytes_max", payload_bytes_max, 2**30))
        self._context = None if tls == "none" else context or ssl.create_default_context()
        self._resolver = resolver
        self._environment = environment

    def __repr__(self) -> str:
        return f"SmtpEndpoint({self._host}:{self._port}, tls={self._mode})"

    @property
    def seconds_max(self) -> float:
        """How long a try may take, from the name's address to the server's last word."""
        return self._seconds

    def deliver(self, message: Message) -> DeliveryOutcome:
        """Try once."""
        deadline = Deadline(self._environment, self._seconds)
        try:
            if len(message.payload) > self._payload_bytes_max:
                raise UnsendableMessage(f"its payload has more than {self._payload_bytes_max} bytes")
            mail = mail_of(message, self._sender)
        except UnsendableMessage as error:
            return DeliveryRefused(f"this message cannot be sent: {error}")
        session = _Session(self._helo)
        try:
            self._open(session, deadline)
        except (OSError, ValueError) as error:  # Errors of smtplib are errors of the system, too.
            session.hang_up()
            return DeliveryFailed(_failure_reason(error, "the mail server cannot be reached"))
        try:
            return _send_mail(session, self._sender, mail)
        except (OSError, ValueError) as error:
            return DeliveryFailed(_failure_reason(error, "the mail server stopped answering"))
        finally:
            session.hang_up()

    def _open(self, session: _Session, deadline: Deadline) -> None:
        addresses = resolve_host(self._resolver, self._host, self._port, deadline)
        connecting = deadline.sooner(self._connect_seconds)
        line = connect_to(addresses, self._port, connecting=connecting, deadline=deadline, bytes_max=REPLY_BYTES_MAX)
        session.begin(line, self._host)
        if self._context is not None and self._mode == "implicit":
            line.secure(self._context, self._host)
        session.greet()
        if self._context is not None and self._mode == "starttls":
            session.secure(self._context)
        if self._login is not None:
            session.login(*self._login)


class _Session(smtplib.SMTP):
    """The standard library's commands, over a line with an end."""

    def __init__(self, helo: str) -> None:
        super().__init__(local_hostname=helo)

    def begin(self, line: DeadlineSocket, host: str) -> None:
        """Speak over this line."""
        untyped: Any = self
        untyped.sock, untyped.file, untyped._host = line, None, host

    def greet(self) -> None:
        """Wait for the greeting, and return it."""
        code, words = self.getreply()
        if code != 220:
            raise smtplib.SMTPConnectError(code, words)
        self.ehlo_or_helo_if_needed()

    def secure(self, context: ssl.SSLContext) -> None:
        """STARTTLS. Not offered is refused: whoever can take the offer out could read the mail otherwise."""
        if not self.has_extn("starttls"):
            raise smtplib.SMTPNotSupportedError("STARTTLS")
        code, words = self.docmd("STARTTLS")
        if code != 220:
            raise smtplib.SMTPResponseException(code, words)
        untyped: Any = self
        untyped.sock.secure(context, untyped._host)
        # What was said before is forgotten, and so is what came in the clear behind the answer.
        untyped.file, untyped.helo_resp, untyped.ehlo_resp = None, None, None
        untyped.esmtp_features, untyped.does_esmtp = {}, False
        self.ehlo_or_helo_if_needed()

    def hang_up(self) -> None:
        """Without QUIT: it would be one more thing to wait for, and changes nothing."""
        self.close()


def _send_mail(session: _Session, sender: str, mail: Mail) -> DeliveryOutcome:
    """From MAIL to the final word."""
    options = [f"size={len(mail.content)}"] if session.has_extn("size") else []
    code, words = session.mail(sender, options)
    if code != 250:
        return _outcome_of_code(code, words, "the sender")
    taken = [session.rcpt(one) for one in mail.recipients]
    refused = [(number, code, words) for number, (code, words) in enumerate(taken, 1) if code not in (250, 251)]
    if refused:
        # The worst answer decides: one that will never be taken is not helped by the patience of the others.
        number, code, words = max(refused, key=lambda one: (one[1] not in SESSION_CODES, one[1]))
        # Not by its address: reasons are kept and shown, and the message itself says who that is.
        return _outcome_of_code(
            code, words, f"recipient {number} of {len(taken)}", f"; {len(refused)} in all" * (len(refused) > 1)
        )
    try:
        code, words = session.data(mail.content)
    except smtplib.SMTPDataError as error:
        return _outcome_of_code(int(error.smtp_code), error.smtp_error, "the mail")
    except OSError as error:
        return DeliveryFailed(
            _failure_reason(error, "the mail server stopped answering, and the mail may have arrived")
        )
    return Delivered(str(code)) if code == 250 else _outcome_of_code(code, words, "the mail")


def _outcome_of_code(code: int, words: bytes | str, what: str, more: str = "") -> DeliveryOutcome:
    reason = f"the mail server answered {code}{_enhanced(words)} to {what}{more}"
    return DeliveryRefused(reason) if 500 <= code <= 599 and code not in SESSION_CODES else DeliveryFailed(reason)


def _enhanced(words: bytes | str) -> str:
    """The status code behind the status code (5.1.1), if there is one. The words are the server's, and stay there."""
    text = words.decode("ascii", "replace") if isinstance(words, bytes) else words
    first = text.split(" ", 1)[0]
    parts = first.split(".")
    right = len(parts) == 3 and all(one.isascii() and one.isdigit() and len(one) <= 3 for one in parts)
    return f" {first}" if right else ""


def _failure_reason(error: Exception, what: str) -> str:
    if isinstance(error, TimeoutError) or isinstance(error.__context__, TimeoutError):  # smtplib wraps it.
        return f"{what}: no answer in time"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return f"{what}: it does not offer STARTTLS, or no supported login; set tls = none if that is right"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{what}: it answered {error.smtp_code}{_enhanced(error.smtp_error)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{what}: its certificate is not valid: {error.verify_message}"
    return f"{what} ({getattr(error, 'strerror', None) or type(error).__name__})"
