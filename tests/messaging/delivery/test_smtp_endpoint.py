"""Mail, over real sockets to a small real server: what is sent, and what each answer means."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Callable
from email import message_from_bytes, policy
from typing import Any

import pytest
from delivery_support import mail
from mail_server import MailServer

from onceward import ConfigurationError
from onceward.messaging.outbox.delivery import SmtpEndpoint
from onceward.messaging.outbox.message import Delivered, DeliveryFailed, DeliveryRefused
from servers.certificates import Authority
from servers.receiver import Receiver

MAIL = b'{"to":"a@example.com","subject":"Paid","text":"Thank you.\\n.\\nBye"}'
THREE = b'{"to":["a@example.com","b@example.com"],"bcc":"c@example.com","subject":"Paid","text":"Thank you."}'


def plain(server: MailServer, **options: Any) -> SmtpEndpoint:
    """An endpoint without TLS on this machine."""
    return SmtpEndpoint("127.0.0.1", port=server.port, sender="shop@example.com", tls="none", **options)


def saying(beginning: str, answer: str) -> Callable[[str], str | None]:
    """A rule: commands that begin so are answered so."""
    return lambda command: answer if command.startswith(beginning) else None


class TestWhatIsSent:
    """One mail, the same on every try."""

    def test_a_mail_is_taken_by_the_server(self) -> None:
        """
        Recipients, subject and text, with lines of a dot in it; the date is that of the message.
        """
        with MailServer() as server:
            outcome = plain(server).deliver(mail(MAIL))

        (taken,) = server.mails
        read: Any = message_from_bytes(taken.content, policy=policy.default)
        assert Delivered("250") == outcome
        assert (taken.sender, taken.recipients) == ("shop@example.com", ["a@example.com"])
        assert (read["Subject"], read["To"], read["From"]) == ("Paid", "a@example.com", "shop@example.com")
        assert read.get_content().replace("\r\n", "\n") == "Thank you.\n.\nBye\n"
        assert read["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"

    def test_every_try_has_the_same_message_id_and_the_same_bytes(self) -> None:
        """
        So that the mail server of the recipient, or the recipient, can tell a repetition.
        """
        with MailServer() as server:
            for attempt in (1, 2, 3):
                plain(server).deliver(mail(MAIL, attempt=attempt))

        assert [one.message_id for one in server.mails] == ["<mail_1@example.com>"] * 3
        assert len({one.content for one in server.mails}) == 1

    def test_blind_copies_are_recipients_and_not_in_the_mail(self) -> None:
        """
        Everybody gets it; nobody sees who was blind.
        """
        with MailServer() as server:
            plain(server).deliver(mail(THREE))

        (taken,) = server.mails
        assert taken.recipients == ["a@example.com", "b@example.com", "c@example.com"]
        assert b"c@example.com" not in taken.content


class TestWhatTheAnswerMeans:
    """4yz is tried again, 5yz is refused, and trouble before the mail is the endpoint's."""

    @pytest.mark.parametrize(
        ("command", "answer", "kind"),
        [
            ("MAIL", "450 4.7.1 later", DeliveryFailed),
            ("MAIL", "552 5.3.4 too large", DeliveryRefused),
            ("MAIL", "530 5.7.0 log in", DeliveryFailed),
            ("RCPT", "450 4.2.0 greylisted", DeliveryFailed),
            ("RCPT", "451 later", DeliveryFailed),
            ("RCPT", "550 5.1.1 nobody", DeliveryRefused),
            ("RCPT", "421 4.3.2 closing", DeliveryFailed),
            ("DATA", "451 4.3.0 later", DeliveryFailed),
            ("DATA", "554 5.5.1 no", DeliveryRefused),
            (".", "452 4.3.1 disk full", DeliveryFailed),
            (".", "550 5.7.1 spam", DeliveryRefused),
            (".", "nonsense", DeliveryFailed),
            ("connect", "554 5.3.2 closed", DeliveryFailed),
            ("connect", "421 4.3.2 busy", DeliveryFailed),
            ("EHLO", "", DeliveryFailed),
            ("MAIL", "", DeliveryFailed),
            ("DATA", "", DeliveryFailed),
        ],
    )
    def test_each_stage_has_its_meaning(self, command: str, answer: str, kind: type) -> None:
        """
        Nothing was taken by the server in any of these; "" is a server that hangs up.
        """
        with MailServer(rule=saying(command, answer)) as server:
            outcome = plain(server).deliver(mail(MAIL))

        assert kind is type(outcome)
        assert "nobody" not in outcome[0]
        assert server.mails == []

    @pytest.mark.parametrize(
        ("answers", "kind", "number"),
        [
            ({"b@": "550 5.1.1 nobody"}, DeliveryRefused, 2),
            ({"b@": "450 4.2.0 later"}, DeliveryFailed, 2),
            ({"a@": "450 4.2.0 later", "c@": "550 5.1.1 nobody"}, DeliveryRefused, 3),
            ({"a@": "450 4.2.0 later", "b@": "451 4.2.0 later"}, DeliveryFailed, 2),
        ],
    )
    def test_every_recipient_is_taken_or_nobody_gets_it(self, answers: dict[str, str], kind: type, number: int) -> None:
        """
        Else those who were taken would get it again with every try. Who it was is told by number: addresses stay out
        of what is kept and shown.
        """

        def rule(command: str) -> str | None:
            return next((answer for part, answer in answers.items() if f"<{part}" in command), None)

        with MailServer(rule=rule) as server:
            outcome = plain(server).deliver(mail(THREE))

        assert kind is type(outcome)
        assert f"recipient {number} of 3" in outcome[0]
        assert "example.com" not in outcome[0]
        assert server.mails == []

    def test_a_lost_last_word_is_a_failure_and_the_next_try_has_the_same_id(self) -> None:
        """
        The server has the mail, and its answer is lost: sent again, it can be told by its Message-ID.
        """
        with MailServer(rule=saying(".", "")) as server:
            outcome = plain(server).deliver(mail(MAIL))
            assert isinstance(outcome, DeliveryFailed)
            assert "may have arrived" in outcome.reason
            server.rule = lambda _command: None
            assert Delivered("250") == plain(server).deliver(mail(MAIL, attempt=2))

        assert len(server.mails) == 2
        assert len({one.message_id for one in server.mails}) == 1

    def test_nobody_there_is_a_failure(self) -> None:
        """
        The mail waits.
        """
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        endpoint = SmtpEndpoint("127.0.0.1", port=port, sender="shop@example.com", tls="none")

        assert DeliveryFailed("the mail server cannot be reached (Connection refused)") == endpoint.deliver(mail(MAIL))


class TestTls:
    """Asked for by default, and then not done without."""

    def secured(self, server: MailServer, authority: Authority, **options: Any) -> SmtpEndpoint:
        options = {"resolver": lambda _host, _port: ["127.0.0.1"], "context": authority.believing(), **options}
        return SmtpEndpoint("mail.example", port=server.port, sender="shop@example.com", **options)

    @pytest.mark.parametrize("mode", ["starttls", "implicit"])
    def test_mail_and_login_go_under_tls(self, authority: Authority, mode: Any) -> None:
        """
        With STARTTLS, or from the first byte.
        """
        tls = authority.serving("mail.example")
        with MailServer(tls=tls, implicit=mode == "implicit", users={"shop": "canary-password"}) as server:
            endpoint = self.secured(server, authority, tls=mode, user="shop", password="canary-password")
            assert Delivered("250") == endpoint.deliver(mail(MAIL))

        assert "canary" not in repr(endpoint)
        assert len(server.mails) == 1

    def test_a_wrong_password_waits_for_somebody_to_mend_it(self, authority: Authority) -> None:
        """
        Not the mail's fault: failed, not refused. The password is not repeated, and neither is what the server says.
        """
        with MailServer(tls=authority.serving("mail.example"), users={"shop": "right"}) as server:
            endpoint = self.secured(server, authority, user="shop", password="canary-password")
            outcome = endpoint.deliver(mail(MAIL))

        encoded = b64encode(b"\0shop\0canary-password").decode()
        assert DeliveryFailed("the mail server cannot be reached: it answered 535 5.7.8") == outcome
        assert not any(text in outcome.reason for text in ("canary", encoded))

    def test_starttls_that_is_not_offered_is_not_done_without(self, authority: Authority) -> None:
        """
        Whoever sits in between could take the offer out, and read everything.
        """
        with MailServer() as server:
            outcome = self.secured(server, authority).deliver(mail(MAIL))

        assert isinstance(outcome, DeliveryFailed)
        assert "does not offer STARTTLS" in outcome.reason
        assert server.mails == []
        assert not any(command.startswith("MAIL") for command in server.commands)

    def test_a_certificate_of_another_name_is_refused(self, authority: Authority) -> None:
        """
        And nothing is sent.
        """
        with MailServer(tls=authority.serving("other.example")) as server:
            outcome = self.secured(server, authority).deliver(mail(MAIL))

        assert isinstance(outcome, DeliveryFailed)
        assert "certificate is not valid" in outcome.reason
        assert server.mails == []


class TestEnds:
    """A try ends, whatever the server does."""

    def test_a_server_that_drips_is_left(self) -> None:
        """
        One byte at a time, for ever.
        """

        def drip(line: socket.socket) -> None:
            while True:
                line.sendall(b"2")
                threading.Event().wait(0.02)

        with _Speaking(drip) as port:
            endpoint = SmtpEndpoint("127.0.0.1", port=port, sender="shop@example.com", tls="none", seconds=0.5)
            outcome = endpoint.deliver(mail(MAIL))

        assert DeliveryFailed("the mail server cannot be reached: no answer in time") == outcome

    def test_a_greeting_without_an_end_is_not_read(self) -> None:
        """
        Line after line: smtplib would keep them all.
        """

        def flood(line: socket.socket) -> None:
            while True:
                line.sendall(b"220-hello\r\n" * 1_000)

        with _Speaking(flood) as port:
            endpoint = SmtpEndpoint("127.0.0.1", port=port, sender="shop@example.com", tls="none")
            outcome = endpoint.deliver(mail(MAIL))

        assert isinstance(outcome, DeliveryFailed)
        assert "cannot be reached" in outcome.reason

    def test_something_that_is_no_mail_server_is_a_failure(self) -> None:
        """
        A web server, for example.
        """
        with _Speaking(lambda line: line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
            endpoint = SmtpEndpoint("127.0.0.1", port=port, sender="shop@example.com", tls="none")
            assert isinstance(endpoint.deliver(mail(MAIL)), DeliveryFailed)


class _Speaking(Receiver):
    """A server that speaks first; entered, it is its port."""

    def __init__(self, speak: Callable[[socket.socket], None]) -> None:
        super().__init__(speak)

    def _read(self, line: socket.socket) -> Any:
        return None

    def __enter__(self) -> Any:
        return super().__enter__().port


class TestDeclaring:
    """What cannot work is said at once."""

    @pytest.mark.parametrize(
        "options",
        [
            {"tls": "ssl"}, {"sender": "Shop <shop@example.com>"}, {"sender": "a@b\r\nRCPT TO:<c@d>"}, {"sender": ""},
            {"user": "shop"}, {"password": "secret"}, {"user": "a", "password": "b", "tls": "none"},
            {"port": 0}, {"port": 70_000}, {"seconds": 0}, {"helo": "a b"}, {"helo": "a\r\nQUIT"},
        ],
    )  # fmt: skip
    def test_options_that_cannot_work_are_refused(self, options: dict[str, Any]) -> None:
        """
        A login in the clear is one of them.
        """
        with pytest.raises(ConfigurationError):
            SmtpEndpoint("mail.example", **{"sender": "shop@example.com", **options})
