"""
Makes a mail from a message. Pure.

    JSON              {"to": "a@example.com", "subject": "...", "text": "..."}, and besides cc, bcc, html, reply_to
    message/rfc822    a whole mail; its recipients are those of To, Cc and Bcc, and Bcc is taken out

Everything about it is made from the message alone, so every try sends the same bytes, under the same Message-ID, with
the date at which the message was added.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email import policy
from email.errors import MessageError
from email.header import Header
from email.message import EmailMessage
from email.message import Message as AnyMail
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.parser import BytesParser
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from onceward._core.canonical import parse_json
from onceward._core.errors import RequestInvalid
from onceward.messaging.outbox.delivery.validation import UnsendableMessage
from onceward.messaging.outbox.message import Message

RECIPIENTS_MAX: Final = 100
"""What every mail server must take (RFC 5321, 4.5.3.1.8)."""
SUBJECT_CHARACTERS_MAX: Final = 998

FIELDS: Final = ("to", "cc", "bcc", "subject", "text", "html", "reply_to")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ADDRESS = re.compile(
    r"(?=.{3,254}\Z)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n|\x00")
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_SIMPLE = re.compile(r"(?:[ -~\t]{0,900}\r\n)*[ -~\t]{0,900}")
# 7bit: not every server takes more, and then it would depend on the server which bytes are sent. A whole mail's head
# stays as it was written; for those that we write, the older policy folds, since the newer loses blanks in subjects.
_WHOLE = policy.SMTP.clone(cte_type="7bit", refold_source="none")
_WRITTEN = policy.compat32.clone(linesep="\r\n", max_line_length=78, mangle_from_=False)


class Mail(NamedTuple):
    """What is handed to a mail server."""

    recipients: list[str]
    content: bytes


def is_address(text: object) -> bool:
    """Whether this is a mail address in ASCII and nothing else: no name before it, no brackets, one line."""
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None


def message_id(message: Message, domain: str) -> str:
    """The Message-ID of a message: the same on every try, and another for every other message."""
    local = message.id if _ID.fullmatch(message.id) else sha256(message.id.encode("utf-8", "replace")).hexdigest()
    return f"<{local}@{domain}>"


def mail_of(message: Message, sender: str) -> Mail:
    """The mail that a message asks for, or `UnsendableMessage`."""
    kind = message.content_type.partition(";")[0].strip().lower()
    try:
        mail, recipients = _whole(message.payload) if kind == "message/rfc822" else _written(message.payload)
        _complete(mail, message, sender)
        content = mail.as_bytes()
    except (ValueError, LookupError, AttributeError, TypeError, MessageError):
        # The email package has many ways to stumble over a mail that is none.
        raise UnsendableMessage("its payload cannot be written as a mail") from None
    if _BARE.search(content):
        # Servers differ in what they take for the end of a line, and so for the end of a mail.
        raise UnsendableMessage("its payload has a line end, or a NUL, that mail does not allow")
    recipients = list(dict.fromkeys(recipients))
    if not 1 <= len(recipients) <= RECIPIENTS_MAX:
        raise UnsendableMessage(f"a mail has 1 to {RECIPIENTS_MAX} recipients; add a message for each group of them")
    return Mail(recipients, content)


def _complete(mail: AnyMail, message: Message, sender: str) -> None:
    if mail["From"] is None:
        mail["From"] = sender
    if mail["Date"] is None:
        mail["Date"] = format_datetime(_EPOCH + timedelta(seconds=message.created_us // 1_000_000))
    if mail["Message-ID"] is None:
        mail["Message-ID"] = message_id(message, sender.rpartition("@")[2])


# --- from a few fields ---


def _written(payload: bytes) -> tuple[AnyMail, list[str]]:
    try:
        fields = parse_json(payload)
    except RequestInvalid:
        raise UnsendableMessage(
            'its payload is not JSON; write {"to": "...", "subject": "...", "text": "..."}'
        ) from None
    if not isinstance(fields, dict) or (unknown := fields.keys() - set(FIELDS)):
        named = f", and not {', '.join(sorted(unknown))[:100]!r}" if isinstance(fields, dict) else ""
        raise UnsendableMessage(f"a mail is an object with {', '.join(FIELDS)} in it{named}")
    lists = {name: _addresses(name, fields.get(name, [])) for name in ("to", "cc", "bcc", "reply_to")}
    mail: AnyMail = _part(_text(fields, "text", None), "plain")
    if "html" in fields:
        parts = [mail, _part(_text(fields, "html", None), "html")]
        # A boundary of chance would be another on every try.
        mail = MIMEMultipart("alternative", "=-onceward-" + sha256(payload).hexdigest()[:32], parts, policy=_WRITTEN)
    for name, header in (("to", "To"), ("cc", "Cc"), ("reply_to", "Reply-To")):
        if lists[name]:
            mail[header] = ", ".join(lists[name])
    subject = _text(fields, "subject", SUBJECT_CHARACTERS_MAX, one_line=True)
    mail["Subject"] = Header(subject, "us-ascii" if subject.isascii() else "utf-8", header_name="Subject")  # type: ignore[assignment]
    return mail, [*lists["to"], *lists["cc"], *lists["bcc"]]


def _part(text: str, kind: str) -> MIMEText:
    lines = _LINE_ENDS.sub("\r\n", text)
    return MIMEText(lines, kind, "us-ascii" if _SIMPLE.fullmatch(lines) else "utf-8", policy=_WRITTEN)


def _addresses(name: str, value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(map(is_address, found)):
        raise UnsendableMessage(
            f"{name} is an address such as a@example.com, or a list of them: without names, in ASCII; "
            "anything else can be sent as a whole mail (message/rfc822)"
        )
    return found


def _text(fields: dict[str, Any], name: str, most: int | None, *, one_line: bool = False) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or (most is not None and len(value) > most):
        raise UnsendableMessage(f"{name} is missing, not text, or too long")
    if one_line and any(not one.isprintable() for one in value):
        raise UnsendableMessage(f"{name} is one line: anything after a line end would be read as another header")
    return value


# --- a whole one ---


def _whole(payload: bytes) -> tuple[EmailMessage, list[str]]:
    mail: Any = BytesParser(policy=_WHOLE).parsebytes(payload)
    if not isinstance(mail, EmailMessage) or mail["Subject"] is None or mail.defects:
        raise UnsendableMessage("its payload is not a mail that can be read: it needs a Subject, To, and a blank line")
    found = []
    for name in ("To", "Cc", "Bcc"):
        for header in mail.get_all(name, []):
            for address in header.addresses:
                if not is_address(address.addr_spec):
                    raise UnsendableMessage(f"{name} has an address in it that cannot be written to")
                found.append(address.addr_spec)
    del mail["Bcc"]
    return mail, found
