"""
`Source`: one sender of events, with its signature scheme, its secrets and its handler.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from onceward._core.backoff import Backoff
from onceward._core.canonical import parse_json
from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError, RequestInvalid
from onceward._core.sequence_flow import NUMBER_MAX
from onceward._core.terms import Seconds
from onceward.messaging.webhooks import GitHub, PlainHmac, Scheme, Secret
from onceward.messaging.webhooks.signature_schemes import secret_for_scheme
from onceward.messaging.webhooks.signatures import SECRET_BYTES_MIN

ATTEMPTS = 5
"""The first attempt, and four retries."""
KEEP_SECONDS = 30 * 86_400.0
"""How long the ids of processed events are kept: a month, as tombstones. Senders redeliver for days."""
SECRETS_MAX = 4
BACKOFF = Backoff(base=1.0, cap=300.0)

log = logging.getLogger("onceward.inbox")

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?", re.ASCII)
_PLACE = re.compile(r"(header|member):([A-Za-z0-9_.-]{1,100})", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)

HEADERS_MAX = 40
HEADER_CHARACTERS_MAX = 1_000
_SENSITIVE_HEADERS = re.compile(r"signature|secret|token|auth|cookie|forwarded|real-ip|key", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """One sender, under the name that its address ends with."""

    name: str
    scheme: Scheme
    secrets: Sequence[Secret | str] = field(repr=False)
    """Every secret in force: two, while one is being replaced. As the sender shows it: the scheme reads it."""
    handler: Callable[..., Any] | str
    """The function; or its name, as `package.module:function`, imported when the first event is processed."""
    _: KW_ONLY
    attempts: int = ATTEMPTS
    """How often a handler is tried before its event becomes a dead letter."""
    backoff: Backoff = BACKOFF
    """How long to wait between two tries: full jitter, a second at first, five minutes at most."""
    number_at: str | None = None
    """Where the source numbers its events: `header:x-sequence`, or `member:data.sequence` of a JSON body."""
    keep: Seconds | Literal["forever"] | None = None
    """How long the id of a processed event is kept. Default: a month; for ever where no time is signed, because such a
    message could be sent again at any time."""
    scope: str = ""
    """Whose events these are. Default: the inbox's scope."""
    trust_unsigned_id: bool = False
    """Where the id is not signed (GitHub, PacSpace, plain HMAC with `id_header`), equal signed bytes are one event,
    whatever ids they come with. True: each id is an event of its own. Then whoever has seen one message can have it
    processed as often as they like."""

    def __post_init__(self) -> None:
        check_source_name(self.name)
        if isinstance(self.secrets, str | Secret):
            raise ConfigurationError("secrets must be a list, also if there is only one: [secret]")
        if len(self.secrets) > SECRETS_MAX:
            raise ConfigurationError(f"a source has at most {SECRETS_MAX} secrets: two are enough for a rotation")
        object.__setattr__(self, "secrets", self.read_secrets)
        _ = self.keep_us
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or not 1 <= self.attempts <= 1_000:
            raise ConfigurationError("attempts must be a whole number from 1 to 1000")
        if self.number_at is not None:
            check_number_place(self.number_at)

    @property
    def keep_us(self) -> int | None:
        """How long a processed event's id is kept; None: for ever."""
        if self.keep == "forever" or (self.keep is None and isinstance(self.scheme, GitHub | PlainHmac)):
            return None
        return microseconds(KEEP_SECONDS if self.keep is None else self.keep, "keep")

    @property
    def read_secrets(self) -> tuple[Secret, ...]:
        """The secrets, none of them as text."""
        return tuple(secret_for_scheme(self.scheme, one) for one in self.secrets)

    @property
    def has_short_secret(self) -> bool:
        """Whether one of its secrets can be guessed."""
        return any(one.is_short for one in self.read_secrets)

    def number_of(self, headers: Mapping[str, str], body: bytes) -> int | None:
        """The event's number, if it has a readable one. The body is known to be the sender's by now."""
        if self.number_at is None:
            return None
        kind, _, place = self.number_at.partition(":")
        if kind == "header":
            text = headers.get(place.lower(), "")
            return _within(int(text)) if _DIGITS.fullmatch(text) else None
        try:
            found: Any = parse_json(body)
        except RequestInvalid:
            return None
        for name in place.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return _within(found) if type(found) is int else None


def warn_of_short_secret(name: str) -> None:
    """Log that a source has a short secret."""
    log.warning(
        "the source %s has a secret of fewer than %d bytes, which can be guessed: ask its sender for a longer one",
        name, SECRET_BYTES_MIN,
    )  # fmt: skip


def check_source_name(name: str) -> str:
    """Return the name if a source may have it."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise ConfigurationError(
        "a source's name is 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or a digit: it "
        "becomes a part of its address"
    )


def check_number_place(place: str) -> str:
    """Return the place of a number if it is written correctly."""
    if not _PLACE.fullmatch(place):
        raise ConfigurationError(
            "number_at must be the place of the number: header:x-sequence, or member:data.sequence of a JSON body"
        )
    return place


def headers_by_name(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """
    Headers by name in lower case. Several of one name are joined with commas.

    So an id or a time that came twice is not valid, and is refused.
    """
    found: dict[str, list[str]] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        found.setdefault(name.lower(), []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def headers_to_keep(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are kept for the handler: content type and the sender's own, no credentials or signatures."""
    kept = {
        name: value
        for name, value in headers.items()
        if (name in ("content-type", "user-agent") or name.startswith(("x-", "webhook-", "svix-")))
        and not _SENSITIVE_HEADERS.search(name)
        and len(value) <= HEADER_CHARACTERS_MAX
    }
    return dict(list(kept.items())[:HEADERS_MAX])


def _within(number: int) -> int | None:
    return number if 0 <= number <= NUMBER_MAX else None
