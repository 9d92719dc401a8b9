"""
What the other side asks for in its headers: how long to wait, and whether to retry at all.

    first an explicit wait      retry-after-ms, x-amz-retry-after, grpc-retry-pushback-ms, Retry-After
    else an exhausted limit     RateLimit, RateLimit-Reset, X-RateLimit-Reset, x-ratelimit-reset-*,
                                anthropic-ratelimit-*-reset
    besides, a plain word       x-should-retry: true or false; a negative grpc-retry-pushback-ms means never

Headers are other people's text. A value that is not well-formed is ignored, as if it were not there; one that asks for
more than `WAIT_MAX` is taken for `WAIT_MAX`. Nothing here raises, and nothing here knows the time: instants need `now`
(or the answer's own `Date`, which is better: then a clock that is wrong on either side does no harm).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final, NamedTuple, TypeAlias

from onceward._core.structured_fields import Malformed, parse_list

Headers: TypeAlias = Mapping[Any, Any] | Iterable[tuple[Any, Any]]

WAIT_MAX: Final = 30 * 24 * 3_600.0
"""A month of seconds: whoever asks for more means "never", and a date a month away can still be shown to a person."""

VALUE_CHARS_MAX: Final = 4_096
"""A longer header value is ignored: no wait takes that many characters to say."""

FIELDS_MAX: Final = 200
"""Header fields looked at: servers cut off at about a hundred, and a hostile list must end somewhere."""


class RetryHints(NamedTuple):
    """What headers ask for."""

    wait: float | None = None
    """Seconds, between 0 and `WAIT_MAX`; None: they do not say."""
    retry: bool | None = None
    """True or False if they say in so many words whether to try again."""


NO_HINTS: Final = RetryHints()

_WORDS: Final = {"true": True, "false": False}


def retry_hints(headers: Headers | None, *, limited: bool = False, now: datetime | None = None) -> RetryHints:
    """
    What these headers ask for.

    With `limited` (the answer was 429), the reset of a limit counts unless the limit is said not to be exhausted;
    otherwise it counts only if the limit is said to be exhausted. Most answers carry their limits for information.
    """
    fields = _fields(headers)
    if not fields:
        return NO_HINTS
    if "date" in fields:
        now = _date(_one(fields, "date"), now) or now
    pushback = _one(fields, "grpc-retry-pushback-ms")
    retry = _WORDS.get(_one(fields, "x-should-retry").lower())
    if pushback.startswith("-"):
        # Any value that is not a number of milliseconds means "do not retry": so says gRPC's A6.
        return RetryHints(None, False)
    for wait in _explicit(fields, now):
        if wait is not None:
            return RetryHints(wait, retry)
    resets = [wait for wait in _limits(fields, limited=limited, now=now) if wait is not None]
    return RetryHints(max(resets, default=None), retry)


def _explicit(fields: dict[str, list[str]], now: datetime | None) -> Iterator[float | None]:
    """The explicit waits, the most precise first."""
    for name in ("retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms"):
        if name in fields:
            yield _longest(fields, name, scale=0.001)
    if "retry-after" in fields:
        yield _longest(fields, "retry-after")
        yield _until(_date(_one(fields, "retry-after"), now), now)


def _limits(fields: dict[str, list[str]], *, limited: bool, now: datetime | None) -> Iterator[float | None]:
    """The resets of the limits that stand in the way."""
    yield from _structured_limits(fields)
    if _exhausted(fields, "ratelimit-remaining", limited=limited):
        yield _longest(fields, "ratelimit-reset")
    for place in ("x-ratelimit", "x-rate-limit"):
        if f"{place}-reset" in fields and _exhausted(fields, f"{place}-remaining", limited=limited):
            yield _reset(_one(fields, f"{place}-reset"), now)
    for name in fields:
        if name.startswith("x-ratelimit-reset-"):
            if _exhausted(fields, name.replace("-reset-", "-remaining-"), limited=limited):
                yield parse_duration(_one(fields, name))
        elif (
            name.startswith("anthropic-ratelimit-")
            and name.endswith("-reset")
            and _exhausted(fields, name.removesuffix("-reset") + "-remaining", limited=limited)
        ):
            yield _until(_rfc3339(_one(fields, name)), now)


def _structured_limits(fields: dict[str, list[str]]) -> Iterator[float | None]:
    """`RateLimit: "name";r=0;t=30`: a limit with nothing remaining opens again in `t` seconds."""
    try:
        members = parse_list(", ".join(fields.get("ratelimit", ())))
    except Malformed:
        return
    for name, parameters in members:
        remaining, reset = parameters.get("r"), parameters.get("t")
        if type(name) is str and type(remaining) is int and type(reset) is int and remaining == 0 and reset >= 0:
            yield min(float(reset), WAIT_MAX)


def _exhausted(fields: dict[str, list[str]], name: str, *, limited: bool) -> bool:
    remaining = parse_seconds(_one(fields, name))
    return limited if remaining is None else remaining == 0


# --- fields ---


def _fields(headers: Headers | None) -> dict[str, list[str]]:
    """The fields by lower-case name, as text; what cannot be read is left out."""
    found: dict[str, list[str]] = {}
    try:
        given: Any = headers or ()
        pairs = iter(given.items() if hasattr(given, "items") else given)
        for _ in range(FIELDS_MAX):
            pair = next(pairs, None)
            if pair is None:
                break
            name, value = pair
            name, value = _text(name), _text(value)
            if name and value and len(value) <= VALUE_CHARS_MAX:
                found.setdefault(name.lower(), []).append(value)
    except Exception:
        return found
    return found


def _text(part: Any) -> str:
    if isinstance(part, bytes):
        return part.decode("latin-1").strip(" \t")
    if isinstance(part, str):
        return part.strip(" \t")
    # Some mappings hold plain numbers, or lists of values.
    if isinstance(part, int) and not isinstance(part, bool):
        return str(part) if abs(part) < 10**15 else ""
    if isinstance(part, list | tuple):
        return ", ".join(_text(one) for one in part)
    return ""


def _one(fields: dict[str, list[str]], name: str) -> str:
    return fields[name][-1] if name in fields else ""


def _longest(fields: dict[str, list[str]], name: str, scale: float = 1.0) -> float | None:
    """Several fields, or one that a proxy has joined: the longest wait keeps every promise."""
    waits: list[float] = []
    for value in fields.get(name, ()):
        parts = [parse_seconds(part.strip(" \t"), scale) for part in value.split(",")]
        if None not in parts:
            waits += [part for part in parts if part is not None]
    return max(waits, default=None)


# --- values ---

_NUMBER = re.compile(r"[0-9]{1,4096}(\.[0-9]{0,30})?")
_DIGITS_MAX = 15
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(d|h|ms|m|us|µs|ns|s)")
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def parse_seconds(text: str, scale: float = 1.0) -> float | None:
    """ASCII digits, perhaps with a fraction. No sign, no exponent, no other script's digits."""
    if _NUMBER.fullmatch(text) is None:
        return None
    whole = text.partition(".")[0].lstrip("0")
    return WAIT_MAX if len(whole) > _DIGITS_MAX else min(float(text) * scale, WAIT_MAX)


def parse_duration(text: str) -> float | None:
    """`6m0s`, `1s`, `20ms`, `1h2m3.5s`; a bare number is seconds."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return parse_seconds(text)
    return min(sum(float(number) * _UNITS[unit] for number, unit in parts), WAIT_MAX)


_EPOCH_LEAST = 10**9
"""A reset from here on is no number of seconds to wait (that would be 31 years) but a second since 1970."""
_EPOCH_MILLIS_LEAST = 10**12


def _reset(text: str, now: datetime | None) -> float | None:
    """`X-RateLimit-Reset`, which no standard has: seconds from now, or seconds or milliseconds since 1970."""
    if _NUMBER.fullmatch(text) is None or len(text) > _DIGITS_MAX:
        return _until(_rfc3339(text) or _date(text, now), now)
    number = float(text)
    if number < _EPOCH_LEAST:
        return parse_seconds(text)
    if now is None or now.tzinfo is None:
        return None
    instant = number / 1_000 if number >= _EPOCH_MILLIS_LEAST else number
    return min(max(instant - now.timestamp(), 0.0), WAIT_MAX)


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_ZONE = r"(?: (?:GMT|UTC|Z|[+-]0000))?"
_DATES = tuple(
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        r"[a-z]{3}, (?P<day>[0-9]{2}) (?P<month>[a-z]{3}) (?P<year>[0-9]{4}) " + _TIME + _ZONE,
        r"[a-z]{6,9}, (?P<day>[0-9]{2})-(?P<month>[a-z]{3})-(?P<year>[0-9]{2}) " + _TIME + _ZONE,
        r"[a-z]{3} (?P<month>[a-z]{3}) (?P<day>[ 0-9][0-9]) " + _TIME + r" (?P<year>[0-9]{4})" + _ZONE,
    )
)


def _date(text: str, now: datetime | None) -> datetime | None:
    """An HTTP date in any of its three forms; without a zone it is UTC."""
    for form in _DATES:
        if match := form.fullmatch(text):
            year = int(match["year"])
            if len(match["year"]) == 2:
                year = _whole_year(year, now)
            try:
                second = min(int(match["second"]), 59)  # A leap second is the second before it.
                month, day = _MONTHS.index(match["month"].lower()) + 1, int(match["day"])
                return datetime(year, month, day, int(match["hour"]), int(match["minute"]), second, tzinfo=UTC)
            except ValueError:
                return None
    return None


def _whole_year(year: int, now: datetime | None) -> int:
    """RFC 9110: a two-digit year that seems more than 50 years ahead lies in the past."""
    this = 2000 if now is None else now.year
    year += this - this % 100
    return year - 100 if year > this + 50 else year


_RFC3339 = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]{1,20})?"
    r"(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def _rfc3339(text: str) -> datetime | None:
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    zone = UTC if match["zone"] in "Zz" else _offset(match["zone"])
    try:
        return datetime.fromisoformat(f"{match['day']}T{match['time']}").replace(tzinfo=zone)
    except ValueError:
        return None


def _offset(zone: str) -> timezone | None:
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    if minutes >= 24 * 60:
        return None
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))


def _until(instant: datetime | None, now: datetime | None) -> float | None:
    """Seconds until then; 0 if it is past; None if either is not known."""
    if instant is None or now is None or instant.tzinfo is None or now.tzinfo is None:
        return None
    return min(max((instant - now).total_seconds(), 0.0), WAIT_MAX)
