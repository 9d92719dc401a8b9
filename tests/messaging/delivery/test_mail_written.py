"""From a message to the bytes of a mail: what is written, and what is refused."""

from __future__ import annotations

import json
from email import message_from_bytes, policy
from typing import Any

import pytest
from delivery_support import mail

from onceward.messaging.outbox.delivery.mail import mail_of, message_id
from onceward.messaging.outbox.delivery.validation import UnsendableMessage

SENDER = "shop@example.com"


def written(**fields: Any) -> bytes:
    """The payload of a mail, with changes; `None` leaves a field out."""
    whole = {"to": "a@example.com", "subject": "Hello", "text": "Text", **fields}
    return json.dumps({name: value for name, value in whole.items() if value is not None}).encode()


def read(content: bytes) -> Any:
    """A mail as a recipient's program reads it."""
    return message_from_bytes(content, policy=policy.default)


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": "Hello\r\nBcc: evil@example.com"}, {"subject": "Hello\nBcc: evil@example.com"},
        {"subject": "a\x00b"}, {"subject": "a\x85b"}, {"subject": "a\u2028b"}, {"subject": "x" * 999}, {"subject": 7},
        {"subject": None}, {"text": None}, {"text": ["a"]}, {"to": None}, {"to": []}, {"to": {}}, {"to": 7},
        {"to": "a@example.com\r\nRCPT TO:<evil@example.com>"}, {"to": "a@example.com, b@example.com"},
        {"to": "A <a@example.com>"}, {"to": "<a@example.com>"}, {"to": "a"}, {"to": "a@"}, {"to": "@b"},
        {"to": "a b@c"},
        {"to": "ä@example.com"}, {"to": "a@exämple.com"}, {"to": "a@example..com"}, {"to": "a@-b.com"}, {"to": [None]},
        {"to": "x" * 300 + "@example.com"}, {"to": [f"a{n}@example.com" for n in range(101)]},
        {"from": "b@example.com"},
        {"headers": {}}, {"cc": "x y"}, {"bcc": "\n"}, {"reply_to": "a@b, c@d"}, {"html": 7},
    ],
)  # fmt: skip
def test_what_could_be_read_as_something_else_is_refused(fields: dict[str, Any]) -> None:
    """
    Lines that would be headers or commands, addresses that are more than one, fields that nobody knows.
    """
    with pytest.raises(UnsendableMessage):
        mail_of(mail(written(**fields)), SENDER)


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"null", b"{", b"\xff", b'{"to":"a@b.c","to":"d@e.f","subject":"","text":""}', b"[" * 100_000,
     b'{"to":"a@b.c","subject":"","text":"\\ud800"}'],
)  # fmt: skip
def test_what_is_no_mail_is_refused(payload: bytes) -> None:
    """
    No JSON, a member that occurs twice, half a character.
    """
    with pytest.raises(UnsendableMessage):
        mail_of(mail(payload), SENDER)


def test_any_text_arrives_as_it_was_written() -> None:
    """
    In every script, with long lines and with lines that mean something to a mail server; the bytes are ASCII.
    """
    text = "Grüße, 世界 😀\n.\n..\nFrom me\n" + "x" * 5_000 + "\nQUIT\n"
    subject = "Grüße aus Köln, 世界 😀 " * 8

    made = mail_of(mail(written(text=text, subject=subject)), SENDER)

    assert made.content.isascii()
    assert text == read(made.content).get_content().replace("\r\n", "\n")
    assert subject.strip() == read(made.content)["Subject"].strip()
    assert max(map(len, made.content.split(b"\r\n"))) <= 998


def test_html_comes_beside_the_text_and_is_the_same_on_every_try() -> None:
    """
    Two parts; the boundary between them is made from the payload and not thrown.
    """
    payload = written(html="<p>Text</p>", cc=["b@example.com"], reply_to="help@example.com")
    made = mail_of(mail(payload), SENDER)

    parts = [part.get_content_type() for part in read(made.content).walk()]
    assert parts == ["multipart/alternative", "text/plain", "text/html"]
    assert made == mail_of(mail(payload, attempt=2), SENDER)
    assert made.recipients == ["a@example.com", "b@example.com"]
    assert read(made.content)["Reply-To"] == "help@example.com"


def test_an_address_twice_is_one_recipient() -> None:
    """
    Nobody gets it twice because two fields name them.
    """
    assert mail_of(mail(written(cc=["a@example.com"])), SENDER).recipients == ["a@example.com"]


@pytest.mark.parametrize("id", ["msg_1", "a.b", "a b", "ä", "a@b", "<x>", "x" * 255, "a\r\nb"])
def test_any_id_makes_a_message_id(id: str) -> None:
    """
    As it is where that is possible, else its digest; always one and the same, and one line.
    """
    made = message_id(mail(b"")._replace(id=id), "example.com")

    assert made.startswith("<")
    assert made.endswith("@example.com>")
    assert made.isascii()
    assert made.isprintable()
    assert len(made) < 200
    assert (f"<{id}@example.com>" == made) == (id == "msg_1")


class TestWholeMails:
    """`message/rfc822`: written by somebody else, completed and checked."""

    WHOLE = b"To: A <a@example.com>\r\nBcc: c@example.com\r\nSubject: Hello\r\n\r\nText\r\n"

    def whole(self, payload: bytes) -> Any:
        return mail_of(mail(payload, content_type="message/rfc822; charset=x"), SENDER)

    def test_a_whole_mail_is_completed(self) -> None:
        """
        Sender, date and Message-ID if it has none; its blind copies are taken out, and get it.
        """
        made = self.whole(self.WHOLE)

        found = read(made.content)
        assert made.recipients == ["a@example.com", "c@example.com"]
        assert (found["Message-ID"], found["From"], found["Bcc"]) == ("<mail_1@example.com>", SENDER, None)
        assert found.get_content().strip() == "Text"

    def test_its_own_message_id_and_sender_stay(self) -> None:
        """
        They are in the payload, and so the same on every try.
        """
        own = b"Message-ID: <own@example.org>\r\nFrom: Me <me@example.org>\r\n"
        found = read(self.whole(own + self.WHOLE).content)

        assert (found["Message-ID"], found["From"]) == ("<own@example.org>", "Me <me@example.org>")

    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
    def test_line_ends_are_made_one_kind(self, end: bytes) -> None:
        """
        Servers differ in what they take for the end of a mail: a bare LF, a dot and a bare LF is none when it is sent.
        """
        body = end.join([b"one", b".", b"two"])
        made = self.whole(b"To: a@example.com\nSubject: s\n\n" + body)

        assert b"\n" not in made.content.replace(b"\r\n", b"")
        assert b"\r" not in made.content.replace(b"\r\n", b"")

    @pytest.mark.parametrize(
        "payload",
        [b"", b"Subject: no recipients\n\nx", b"To: a@example.com\n\nno subject", b"no mail at all",
         b"To: undisclosed:;\nSubject: s\n\nx", "To: ä@example.com\nSubject: s\n\nx".encode(),
         b"To: a@example.com\nSubject: s\n\n\x00", b"To: \"a b\"@example.com\nSubject: s\n\nx"],
    )  # fmt: skip
    def test_what_is_no_mail_is_refused(self, payload: bytes) -> None:
        """
        Nobody to send it to, no head, addresses that cannot be written to.
        """
        with pytest.raises(UnsendableMessage):
            self.whole(payload)
