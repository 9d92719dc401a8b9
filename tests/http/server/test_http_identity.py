"""Who a request says it is: one key or one step, and nothing that could be read in two ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward._core.errors import AmbiguousIdentity, KeyInvalid, KeyMissing, OncewardError, PlanIncomplete
from onceward.http import profile
from onceward.http.server.request_identity import RequestIdentity, identity_of

VISIBLE = [chr(code) for code in range(0x21, 0x7F)]


def read(*headers: tuple[str, str | bytes], **changes: Any) -> RequestIdentity | None:
    raw = [
        (name.lower().encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in headers
    ]
    return identity_of(raw, profile("default", **changes))


def key(value: str | bytes, **changes: Any) -> str:
    found = read(("Idempotency-Key", value), **changes)
    assert found is not None
    return found.key


# The numbers are those of the list of bad inputs.
TAKEN = {
    "15 a path": "../../etc",
    "16 sql": "';drop",
    "17 globs": "*?{}[]",
    "18 another's scope": "tenantB:key",
    "20 a dot at the end": "abc.",
    "22 names of objects": "__proto__",
    "23 null as text": "null",
    "24 a UUID in braces": "{3F2504E0-4F89-11D3-9A0C-0305E82C3301}",
    "25 markup": "<script>alert(1)</script>",
    "27 a formula": "=cmd()",
    "7 two keys joined without a blank": "a,b",
}
REFUSED: dict[str, str | bytes] = {
    "2 empty": "",
    "2 empty in quotation marks": '""',
    "3 blanks": "   ",
    "4 too long": "k" * 256,
    "5 a megabyte": "k" * 1_000_000,
    "7 two keys joined": "a, b",
    "7 two quoted keys joined": '"a", "b"',
    "9 a quotation mark that does not close": '"abc',
    "9 something after it": '"abc"x',
    "9 a bad escape": r'"a\b"',
    "8 with parameters": '"abc";v=1',
    "10 Latin-1": "caf\xe9",
    "11 UTF-8": "\N{ROCKET}".encode(),
    "12 NUL": "a\0b",
    "13 line end": "a\r\nb",
    "14 tab": "a\tb",
    "20 a blank inside": "a b",
    "20 a blank inside quotation marks": '"a "',
    "21 NFD": "cafe\N{COMBINING ACUTE ACCENT}".encode(),
    "21 NFC": "café".encode(),
    "26 an escape for terminals": "\x1b[31m",
    "26 right to left": "\N{RIGHT-TO-LEFT OVERRIDE}x".encode(),
}


@pytest.mark.parametrize("value", TAKEN.values(), ids=TAKEN.keys())
def test_visible_ascii_is_taken_as_it_is(value: str) -> None:
    """
    It means nothing to us, so nothing about it can be abused.
    """
    assert value == key(value)


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.fault("a-key-in-a-header-is-not-checked")
def test_anything_else_is_refused(value: str | bytes) -> None:
    """
    With 400 `key_invalid`, the header's name and a digest of the key, never the key itself.
    """
    with pytest.raises(KeyInvalid) as refused:
        key(value)

    assert refused.value.code == "key_invalid"
    assert str(refused.value).startswith("Idempotency-Key")
    assert len(str(refused.value)) < 400


def test_blanks_around_a_key_are_the_headers_and_not_the_keys() -> None:
    """
    HTTP strips them, and so do we.
    """
    assert "abc" == key("  abc\t") == key(' "abc" ')


@given(st.text(VISIBLE, min_size=1, max_size=255))
def test_bare_and_quoted_are_the_same_key(text: str) -> None:
    """
    A structured field's string, with its escapes; bare, unless it begins with a quotation mark itself.
    """
    quoted = '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'

    assert text == key(quoted)
    if not text.startswith('"'):
        assert text == key(text)


@given(st.binary(max_size=300))
def test_whatever_comes_is_a_key_or_a_refusal(raw: bytes) -> None:
    """
    Never another error, and never a key with something invisible in it.
    """
    try:
        found = key(raw)
    except KeyInvalid:
        return
    assert 1 <= len(found) <= 255
    assert set(found) <= set(VISIBLE)


def test_case_counts() -> None:
    """
    19, 24: an opaque text has no case to fold; only the header's name does.
    """
    assert key("ABC") == "ABC"
    assert RequestIdentity("abc") == identity_of(
        [(b"idempotency-key", b"abc")], profile("default", key_header="IDEMPOTENCY-KEY")
    )


@pytest.mark.requirement("D10")
def test_255_characters_are_a_key_and_256_are_not() -> None:
    """
    Quoted or bare; and nothing is cut to fit.
    """
    assert "k" * 255 == key("k" * 255) == key('"' + "k" * 255 + '"')
    for value in ("k" * 256, '"' + "k" * 256 + '"', "k" * 255 + "a", "k" * 255 + "b"):
        with pytest.raises(KeyInvalid, match="never shortened"):
            key(value)


@pytest.mark.fault("a-bare-key-of-any-length")
@pytest.mark.requirement("A18")
def test_the_profile_sets_the_length() -> None:
    """
    200 characters are accepted and 201 refused; two keys that share 200 characters are not made one.
    """
    persql = profile("persql").key_characters_max

    assert key("k" * 200, key_characters_max=persql) == "k" * 200
    for value in ("k" * 201, "k" * 200 + "a" * 100, "k" * 200 + "b" * 100):
        with pytest.raises(KeyInvalid, match="never shortened"):
            key(value, key_characters_max=persql)


def test_a_header_that_occurs_twice_is_refused() -> None:
    """
    6: also with the same value twice; a proxy and a handler could each take another one.
    """
    for second in ("a", "b"):
        with pytest.raises(KeyInvalid, match="2 times"):
            read(("Idempotency-Key", "a"), ("idempotency-key", second))


def test_no_key_is_nobody_or_refused() -> None:
    """
    1: as the profile says.
    """
    assert None is read(("Accept", "*/*"))
    with pytest.raises(KeyMissing, match="Idempotency-Key"):
        read(("Accept", "*/*"), require_key=True)


@pytest.mark.requirement("A21", "A32")
class TestSteps:
    """`Plan-Key` and `Plan-Step`."""

    def test_together_they_are_a_step(self) -> None:
        """
        Quoted or bare; and they are a key as far as `require_key` is concerned.
        """
        assert RequestIdentity("charge", "p-1") == read(
            ("Plan-Key", "p-1"), ("Plan-Step", '"charge"'), require_key=True
        )

    @pytest.mark.parametrize("alone", ["Plan-Key", "Plan-Step"])
    def test_one_without_the_other_is_refused(self, alone: str) -> None:
        """
        Also beside a key: whoever sends half a step means something that is not there.
        """
        for more in ([], [("Idempotency-Key", "k")]):
            with pytest.raises(PlanIncomplete) as refused:
                read((alone, "x"), *more)
            assert refused.value.code == "plan_incomplete"

    def test_a_key_and_a_step_are_two_operations(self) -> None:
        """
        Refused, unless the profile says that the step counts.
        """
        both = (("Idempotency-Key", "k"), ("Plan-Key", "p"), ("Plan-Step", "s"))

        with pytest.raises(AmbiguousIdentity) as refused:
            read(*both)
        assert refused.value.code == "ambiguous_identity"
        assert RequestIdentity("s", "p") == read(*both, both="plan")

    @pytest.mark.parametrize("bad", ["", "a b", "k" * 256])
    def test_names_are_held_to_the_same_rules(self, bad: str) -> None:
        """
        Both of them.
        """
        for pair in ((bad, "s"), ("p", bad)):
            with pytest.raises(OncewardError) as refused:
                read(("Plan-Key", pair[0]), ("Plan-Step", pair[1]))
            assert refused.value.code == "key_invalid"

    def test_without_plans_the_headers_mean_nothing(self) -> None:
        """
        They are somebody else's.
        """
        assert RequestIdentity("k") == read(("Idempotency-Key", "k"), ("Plan-Key", "p"), plans=False)
        assert None is read(("Plan-Key", "p"), ("Plan-Step", "s"), plans=False)
