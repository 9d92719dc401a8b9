"""What servers ask for in headers, in every spelling; and what is made of nonsense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward._core.classifier import DEFAULT
from onceward._core.retry_headers import FIELDS_MAX, VALUE_CHARS_MAX, WAIT_MAX, RetryHints, retry_hints
from onceward._core.structured_fields import Malformed, Token, parse_list

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


def wait(*, limited: bool = False, **headers: Any) -> float | None:
    """The wait that these headers ask for; underscores stand for hyphens."""
    return retry_hints(
        {name.replace("_", "-"): value for name, value in headers.items()}, limited=limited, now=NOW
    ).wait


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        (" 7 ", 7),
        ("1.5", 1.5),
        ("1.", 1),
        (b"7", 7),
        (7, 7),
        ("Sun, 15 Nov 2026 12:00:30 GMT", 30),
        ("Sun, 15 Nov 2026 12:00:30", 30),
        ("sun, 15 nov 2026 12:00:30 gmt", 30),
        ("Sunday, 15-Nov-26 12:00:30 GMT", 30),
        ("Sun Nov 15 12:00:30 2026", 30),
        ("Sun Nov  1 12:00:30 2026", 0),
        ("Tue, 01 Dec 2026 12:00:60 GMT", 16 * 86_400 + 59),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Mon, 01 Jan 1900 00:00:00 GMT", 0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", WAIT_MAX),
        (str(10**9), WAIT_MAX),
        ("9" * 400, WAIT_MAX),
        ("1" + "0" * 30, WAIT_MAX),
        ("3, 9", 9),
    ],
)
def test_retry_after_in_every_form(value: Any, seconds: float) -> None:
    """
    Seconds, fractions, three forms of date; what is past is now, what is too far is a month.
    """
    assert seconds == wait(Retry_After=value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "+1",
        "1e3",
        "1e400",
        "nan",
        "inf",
        "Infinity",
        "0x10",
        "1_000",
        "1,5 s",
        "soon",
        "٣٠",
        "１２",
        "²",
        "1.5.5",
        "Sun, 32 Nov 2026 12:00:30 GMT",
        "Sun, 15 Foo 2026 12:00:30 GMT",
        "Sun, 15 Nov 2026 25:00:30 GMT",
        "Sun, 15 Nov 2026 12:00:30 CEST",
        "Sun, 15 Nov 0000 12:00:30 GMT",
        "2026-11-15T12:00:30Z",
        "9" * (VALUE_CHARS_MAX + 1),
        None,
        True,
        1.5,
        object(),
        b"\xff\xfe",
    ],
)
def test_nonsense_is_ignored(value: Any) -> None:
    """
    As if the header were not there: the caller's own back-off applies.
    """
    assert wait(Retry_After=value) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after-ms": "250"}, RetryHints(0.25)),
        ({"Retry-After-Ms": "250", "Retry-After": "9"}, RetryHints(0.25)),
        ({"retry-after-ms": "soon", "Retry-After": "9"}, RetryHints(9.0)),
        ({"x-amz-retry-after": "1500"}, RetryHints(1.5)),
        ({"grpc-retry-pushback-ms": "20"}, RetryHints(0.02)),
        ({"grpc-retry-pushback-ms": "-1"}, RetryHints(None, False)),
        ({"grpc-retry-pushback-ms": "-1", "Retry-After": "3"}, RetryHints(None, False)),
        ({"x-should-retry": "true"}, RetryHints(None, True)),
        ({"x-should-retry": "False", "Retry-After": "3"}, RetryHints(3.0, False)),
        ({"x-should-retry": "maybe"}, RetryHints()),
        ([("Retry-After", "3"), ("retry-after", "5")], RetryHints(5.0)),
        ([(b"Retry-After", b"3")], RetryHints(3.0)),
        (
            [("Date", "Sun, 15 Nov 2026 09:00:00 GMT"), ("Retry-After", "Sun, 15 Nov 2026 09:00:10 GMT")],
            RetryHints(10.0),
        ),
        ({"Retry-After": ["3", "5"]}, RetryHints(5.0)),
        ({}, RetryHints()),
        (None, RetryHints()),
        (7, RetryHints()),
        ("Retry-After: 7", RetryHints()),
        ([("Retry-After",)], RetryHints()),
    ],
)
def test_what_headers_ask_for(headers: Any, expected: RetryHints) -> None:
    """
    The most precise explicit wait, and the server's plain word; from a mapping or from pairs, of text or bytes.
    """
    assert retry_hints(headers, now=NOW) == expected


@pytest.mark.fault("a-limits-reset-is-not-read")
@pytest.mark.parametrize(
    ("headers", "limited", "seconds"),
    [
        ({"RateLimit": '"default";r=0;t=30'}, False, 30),
        ({"RateLimit": '"default";r=50;t=30'}, True, None),
        ({"RateLimit": '"burst";r=0;t=5, "day";r=0;t=3600;pk=:c29tZQ==:'}, False, 3600),
        ({"RateLimit": '"default"; r=0; t=30'}, False, 30),
        ({"RateLimit": '"default";r=0'}, True, None),
        ({"RateLimit": '"default";r=0;t=-3'}, True, None),
        ({"RateLimit": '"default";r=0;t=30,'}, True, None),
        ({"RateLimit": "limit=100, remaining=0, reset=5"}, True, None),
        ([("RateLimit", '"a";r=0;t=5'), ("RateLimit", '"b";r=0;t=7')], False, 7),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "12"}, False, 12),
        ({"RateLimit-Remaining": "3", "RateLimit-Reset": "12"}, True, None),
        ({"RateLimit-Reset": "12"}, True, 12),
        ({"RateLimit-Reset": "12"}, False, None),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, False, 360),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "20ms"}, True, 1),
        ({"x-ratelimit-reset": "30"}, True, 30),
        ({"x-ratelimit-reset": "30", "x-ratelimit-remaining": "0"}, False, 30),
        ({"x-ratelimit-reset": "30", "x-ratelimit-remaining": "5"}, True, None),
        ({"x-ratelimit-reset": "30"}, False, None),
        ({"X-RateLimit-Reset": "30", "Retry-After": "7"}, True, 7),
        ({"x-rate-limit-reset": str(int(NOW.timestamp()) + 90)}, True, 90),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 90)}, True, 90),
        ({"x-ratelimit-reset": str(int(NOW.timestamp() + 90) * 1_000)}, True, 90),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) - 90)}, True, 0),
        ({"x-ratelimit-reset": "9" * 15}, True, WAIT_MAX),
        ({"x-ratelimit-reset": "9" * 40}, True, None),
        ({"x-ratelimit-reset": "2026-11-15T12:01:30Z"}, True, 90),
        ({"x-ratelimit-reset": "Sun, 15 Nov 2026 12:01:30 GMT"}, True, 90),
        ({"x-ratelimit-reset": "soon"}, True, None),
        ({"x-ratelimit-reset-tokens": "20ms"}, True, 0.02),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, True, 3723.5),
        ({"x-ratelimit-reset-tokens": "2d"}, True, 172_800),
        ({"x-ratelimit-reset-tokens": "9999999d"}, True, WAIT_MAX),
        ({"x-ratelimit-reset-tokens": "1s "}, True, 1),
        ({"x-ratelimit-reset-tokens": "1s!"}, True, None),
        ({"x-ratelimit-reset-tokens": "-1s"}, True, None),
        ({"x-ratelimit-reset-tokens": "s"}, True, None),
        ({"anthropic-ratelimit-requests-reset": "2026-11-15T12:01:00Z"}, True, 60),
        ({"anthropic-ratelimit-requests-reset": "2026-11-15T13:01:00+01:00"}, True, 60),
        ({"anthropic-ratelimit-requests-reset": "2026-11-15T12:01:00.999Z"}, True, 60),
        ({"anthropic-ratelimit-requests-reset": "2026-11-15T12:01:00"}, True, None),
        ({"anthropic-ratelimit-requests-reset": "2026-11-15T12:01:00+99:00"}, True, None),
        (
            {
                "anthropic-ratelimit-requests-reset": "2026-11-15T12:01:00Z",
                "anthropic-ratelimit-requests-remaining": "7",
                "anthropic-ratelimit-tokens-reset": "2026-11-15T12:00:20Z",
                "anthropic-ratelimit-tokens-remaining": "0",
            },
            True,
            20,
        ),
        ({"Retry-After": "2", "x-ratelimit-reset-requests": "6m0s"}, True, 2),
    ],
)
def test_limits_and_their_resets(headers: Any, limited: bool, seconds: float | None) -> None:
    """
    The longest reset of the limits that are exhausted; limits that are not are information.
    """
    assert seconds == retry_hints(headers, limited=limited, now=NOW).wait


def test_a_date_without_any_clock_is_not_guessed() -> None:
    """
    Without `now` and without the answer's own date there is no telling how far away an instant is.
    """
    headers = {"Retry-After": "Sun, 15 Nov 2026 12:00:30 GMT"}

    assert retry_hints(headers).wait is None
    assert retry_hints(headers, now=NOW.replace(tzinfo=None)).wait is None
    assert retry_hints({**headers, "Date": "Sun, 15 Nov 2026 12:00:00 GMT"}).wait == 30
    assert retry_hints(headers, now=NOW.astimezone(timezone(timedelta(hours=9)))).wait == 30


def test_the_answers_own_date_is_better_than_our_clock() -> None:
    """
    Our clock is an hour ahead: the server's ten seconds are ten seconds all the same.
    """
    headers = {"Date": "Sun, 15 Nov 2026 11:00:00 GMT", "Retry-After": "Sun, 15 Nov 2026 11:00:10 GMT"}

    assert retry_hints(headers, now=NOW).wait == 10


def test_a_hostile_list_of_headers_ends_somewhere() -> None:
    """
    An endless iterable, and one that breaks, give what was read before.
    """

    def endless() -> Any:
        yield "Retry-After", "4"
        while True:
            yield "x", "y"

    def breaking() -> Any:
        yield "Retry-After", "4"
        raise OSError

    class Broken(dict[str, str]):
        def items(self) -> Any:
            raise RuntimeError

    assert retry_hints(endless(), now=NOW).wait == 4
    assert retry_hints(breaking(), now=NOW).wait == 4
    assert RetryHints() == retry_hints(Broken({"a": "b"}), now=NOW)
    assert retry_hints([("x", "y")] * FIELDS_MAX + [("Retry-After", "4")], now=NOW).wait is None


NUMBERLIKE = st.text(st.sampled_from("0123456789.,-+eE nNaAiIfF:;=\"'GMTsmhdu٣２²"), max_size=40)
NAMES = st.sampled_from(
    [
        "Retry-After",
        "retry-after-ms",
        "x-amz-retry-after",
        "grpc-retry-pushback-ms",
        "x-should-retry",
        "RateLimit",
        "RateLimit-Reset",
        "RateLimit-Remaining",
        "x-ratelimit-reset-tokens",
        "anthropic-ratelimit-tokens-reset",
        "Date",
    ]
)
DATES = st.datetimes(timezones=st.just(UTC)).map(lambda one: f"{one:%a, %d %b} {one.year:04d} {one:%H:%M:%S} GMT")
VALUES = st.one_of(NUMBERLIKE, DATES, st.text(max_size=60), st.binary(max_size=60), st.integers(), st.none())


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6), st.booleans())
def test_whatever_is_sent_the_answer_is_a_sane_wait_or_none(pairs: Any, limited: bool) -> None:
    """
    Nothing raises, and a wait is between nothing and a month.
    """
    word = retry_hints(pairs, limited=limited, now=NOW)

    assert word.wait is None or 0 <= word.wait <= WAIT_MAX
    assert word.retry in (None, True, False)


@given(st.integers(0, 10**9), st.sampled_from(["{}", " {}", "{}.0", "0{}"]))
def test_every_plain_number_of_seconds_is_understood(seconds: int, spelling: str) -> None:
    """
    However it is spelled, and bounded by name.
    """
    assert min(float(seconds), WAIT_MAX) == wait(Retry_After=spelling.format(seconds))


@given(st.datetimes(datetime(1977, 1, 1), datetime(2075, 12, 31)))
def test_the_three_forms_of_a_date_say_the_same(instant: datetime) -> None:
    """
    IMF-fixdate, RFC 850 and asctime of one instant give one wait. (Two digits reach 50 years ahead, says the RFC.)
    """
    day, month = f"{instant:%A}", f"{instant:%b}"
    time = f"{instant:%H:%M:%S}"
    forms = [
        f"{day[:3]}, {instant.day:02d} {month} {instant.year} {time} GMT",
        f"{day}, {instant.day:02d}-{month}-{instant.year % 100:02d} {time} GMT",
        f"{day[:3]} {month} {instant.day:2d} {time} {instant.year}",
    ]

    assert len({wait(Retry_After=form) for form in forms}) == 1


class TestStructuredFields:
    """The strict reader of lists."""

    @pytest.mark.parametrize(
        ("text", "members"),
        [
            ("", []),
            ('"a"', [("a", {})]),
            ('"a\\"b\\\\"', [('a"b\\', {})]),
            ("tok*en/x", [("tok*en/x", {})]),
            ("1, -2,\t3.5", [(1, {}), (-2, {}), (3.5, {})]),
            ("?1;a;b=?0", [(True, {"a": True, "b": False})]),
            (":YQ==:", [(b"a", {})]),
            ('"a";r=1;r=2', [("a", {"r": 2})]),
        ],
    )
    def test_what_is_well_formed_is_read(self, text: str, members: Any) -> None:
        """
        Items of every kind, with their parameters.
        """
        assert members == parse_list(text)

    def test_a_word_is_not_a_string(self) -> None:
        """
        An unquoted name is not what the draft asks for.
        """
        assert type(parse_list("a")[0].value) is Token
        assert retry_hints({"RateLimit": "default;r=0;t=30"}, limited=True).wait is None

    @pytest.mark.parametrize(
        "text",
        [
            ",",
            '"a",',
            '"a" "b"',
            '"a',
            '"a\\x"',
            '"ä"',
            "1.",
            "1.2345",
            "1" * 16,
            "(1 2)",
            "a=1",
            '"a";R=1',
            '"a";=1',
            '"a";r=',
            "?2",
            "--1",
            ", ".join(["1"] * 65),
            '"a"' + ";x=1" * 65,
        ],
    )
    def test_one_mistake_spoils_the_field(self, text: str) -> None:
        """
        Half-understood text is worse than none.
        """
        with pytest.raises(Malformed):
            parse_list(text)

    @given(st.text(st.sampled_from('"abrt;=,0123456789.-?:*\\ '), max_size=60))
    def test_any_text_is_read_or_malformed(self, text: str) -> None:
        """
        There is no third way.
        """
        try:
            parse_list(text)
        except Malformed:
            return


@pytest.mark.parametrize("status", [301, 413, 429, 500, 503])
def test_a_wait_is_read_whatever_the_status(status: int) -> None:
    """
    RFC 9110 ties Retry-After to no status.
    """

    class Response:
        status_code = status
        headers = {"retry-after": "3"}

    assert DEFAULT.judge(Response(), now=NOW).wait == 3


@pytest.mark.parametrize(
    ("status", "word", "retried"),
    [(429, "false", False), (409, "true", True), (400, "true", True), (401, "true", False), (200, "true", False)],
)
def test_the_servers_plain_word_counts(status: int, word: str, retried: bool) -> None:
    """
    Except where credentials are missing (they stay missing) or it worked.
    """

    class Response:
        status_code = status
        headers = {"x-should-retry": word}

    assert retried is DEFAULT.retryable(Response(), keyed=True)
