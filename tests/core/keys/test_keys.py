"""What may be a key, what a record is found by, and the keys that are derived, minted and passed on."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import re
import subprocess
import sys
import time
import uuid
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import mint
from onceward._core.downstream_keys import PROFILES, downstream_key
from onceward._core.errors import ConfigurationError, KeyInvalid, RequestInvalid, ScopeMissing
from onceward._core.fingerprint import (
    fingerprint,
    fingerprint_canonical,
    fingerprint_keyed,
    fingerprint_raw,
    known_scheme,
)
from onceward._core.key_derivation import derive, derive_colon, input_hash
from onceward._core.keys import (
    check_key,
    check_scope,
    digest_of,
    environment_key,
    key_digest,
    mint_from,
    record_id,
)

SECRET = b"sixteen bytes or"
FIELDS: dict[str, Any] = {
    "worker": "w-1",
    "run": "r-1",
    "turn": 3,
    "tool": "charge",
    "input": {"user": "u-1", "amount": 1250},
}
COLON_FIELDS: dict[str, Any] = {
    "worker_id": "w-1",
    "run_id": "r-1",
    "turn_seq": 3,
    "tool_name": "charge",
    "canonical_input_hash": input_hash({"a": 1, "b": 2}),
}


class Name(StrEnum):
    ONE = "charge:1"


class TestCheckKey:
    @pytest.mark.parametrize("key", ["a", "charge:o-17", "!~", "%20", Name.ONE])
    def test_good_keys_come_back_as_they_are(self, key: str) -> None:
        """
        A good key is given back unchanged, and as a plain str.
        """
        assert str(key) == check_key(key)
        assert type(check_key(key)) is str

    @pytest.mark.requirement("D10")
    def test_255_characters_are_a_key_and_256_are_not(self) -> None:
        """
        The limit is 255; a longer key is refused and never shortened.
        """
        assert check_key("k" * 255) == "k" * 255
        with pytest.raises(KeyInvalid, match=r"longer than 255 .*\(256 characters, .* never shortened"):
            check_key("k" * 256)

    def test_a_lower_limit_can_be_set(self) -> None:
        """
        A profile may take less.
        """
        assert check_key("k" * 200, limit=200) == "k" * 200
        with pytest.raises(KeyInvalid, match="longer than 200"):
            check_key("k" * 201, limit=200)

    @pytest.mark.parametrize(
        ("key", "advice"),
        [
            ("", "is empty; derive it"),
            (None, "is missing"),
            (17, "is a int and must be a str"),
            (b"k", "is a bytes and must be a str"),
            ("charge o-17", "has spaces"),
            (" k", "has spaces"),
            ("charge\n", "has control characters"),
            ("k\x7f", "has control characters"),
            ("k\x00", "has control characters"),
            ("caf\u00e9", "outside ASCII"),
            ("k\u00a0", "outside ASCII"),
            ("\ud800", "outside ASCII"),
        ],
    )
    def test_each_kind_of_bad_key_gets_its_own_advice(self, key: Any, advice: str) -> None:
        """
        The error says what is wrong and what to do.
        """
        with pytest.raises(KeyInvalid, match=advice):
            check_key(key)

    @pytest.mark.parametrize(
        "key", ["someone@example.com hello", "someone@example.com" * 20, "\u00e9someone@example.com"]
    )
    def test_the_error_shows_a_digest_and_never_the_key(self, key: str) -> None:
        """
        Keys hold personal data, and errors end up in logs.
        """
        with pytest.raises(KeyInvalid) as caught:
            check_key(key)

        assert "someone" not in str(caught.value)
        assert f"{len(key)} characters, digest {key_digest(key)}" in str(caught.value)

    @given(st.text(max_size=300))
    def test_a_key_is_visible_ascii_and_nothing_else_is(self, key: str) -> None:
        """
        The fast check agrees with the rule as one would write it down.
        """
        allowed = re.fullmatch(r"[\x21-\x7e]{1,255}", key) is not None

        try:
            assert (key if allowed else None) == check_key(key)
        except KeyInvalid:
            assert not allowed


class TestScope:
    @pytest.mark.parametrize("scope", [None, ""])
    def test_no_scope_is_an_error_of_its_own(self, scope: str | None) -> None:
        """
        Without a scope nobody knows who is calling, so nothing runs.
        """
        with pytest.raises(ScopeMissing, match="scope="):
            check_scope(scope)

    @pytest.mark.parametrize("scope", ["live acme", "s" * 256, "caf\u00e9", 17])
    def test_a_scope_keeps_the_rules_of_keys(self, scope: Any) -> None:
        """
        A bad scope is a mistake in the configuration, not in a key.
        """
        with pytest.raises(ConfigurationError, match=r"^the scope "):
            check_scope(scope)

    def test_a_good_scope_comes_back(self) -> None:
        """
        255 visible characters at most.
        """
        assert check_scope("live:acme") == "live:acme"
        assert check_scope("s" * 255) == "s" * 255


class TestEnvironmentKey:
    def test_the_environment_goes_in_front_once(self) -> None:
        """
        The stored key carries the prefix, and a key that has it already is not given a second one.
        """
        assert environment_key("live", "charge:1") == "live:charge:1"
        assert environment_key("live", environment_key("live", "charge:1")) == "live:charge:1"
        assert environment_key("test", "charge:1") == "test:charge:1"

    @pytest.mark.parametrize(("environment", "key"), [("live", "test:1"), ("test", "live:1")])
    def test_a_key_of_the_other_environment_is_refused(self, environment: str, key: str) -> None:
        """
        A key marked for one environment never reaches the other.
        """
        with pytest.raises(KeyInvalid, match=r"belongs to the (test|live) environment"):
            environment_key(environment, key)

    def test_the_limit_counts_what_follows_the_prefix(self) -> None:
        """
        A key that is long enough without the prefix is long enough with it.
        """
        assert "live:" + "k" * 255 == environment_key("live", "k" * 255) == environment_key("live", "live:" + "k" * 255)
        for bad in ("k" * 256, "live:" + "k" * 256, "live:", ""):
            with pytest.raises(KeyInvalid):
                environment_key("live", bad)

    def test_an_unknown_environment_is_a_mistake_in_the_configuration(self) -> None:
        """
        There are two environments.
        """
        with pytest.raises(ConfigurationError, match="live, test"):
            environment_key("staging", "k")


class TestRecordId:
    def test_is_the_formula_that_is_written_down(self) -> None:
        """
        SHA-256 over the domain and each part behind its length, as eight bytes, big end first.
        """
        expected = hashlib.sha256(b"onceward/1")
        for part in ("step", "live:acme", "plan", "caf\u00e9"):
            expected.update(len(part.encode()).to_bytes(8, "big") + part.encode())

        assert expected.digest() == record_id("step", "live:acme", "plan", "caf\u00e9")

    @given(
        st.lists(st.text(":ab", max_size=3), min_size=3, max_size=4),
        st.lists(st.text(":ab", max_size=3), min_size=3, max_size=4),
    )
    def test_two_names_never_share_an_id(self, one: list[str], other: list[str]) -> None:
        """
        Kinds, scopes and key parts that run together alike are still two records.
        """
        assert (one == other) is (record_id(*one) == record_id(*other))

    def test_the_digest_is_its_beginning(self) -> None:
        """
        Logs show twelve hex digits of the id.
        """
        identity = record_id("key", "live:acme", "k")

        assert identity.hex()[:12] == digest_of(identity)


class TestMint:
    def test_a_minted_key_is_a_uuid_with_122_random_bits(self) -> None:
        """
        36 characters, version 4; of the 128 bits that go in, all but six come out.
        """
        zero = mint_from(bytes(16))
        changed = {mint_from((1 << bit).to_bytes(16, "big")) for bit in range(128)} - {zero}

        assert len(changed) == 122
        assert {len(key) for key in changed} == {36}
        assert {uuid.UUID(key).version for key in changed} == {4}
        assert {uuid.RFC_4122} == {uuid.UUID(key).variant for key in changed}

    @pytest.mark.requirement("D11", "E27")
    @pytest.mark.fault("keys-mint-is-short")
    def test_mint_gives_another_uuid_every_time(self) -> None:
        """
        The public function draws all its bits anew: 36 characters, and each of the 122 bits takes both values.
        """
        keys = [mint() for _ in range(256)]
        bits = [uuid.UUID(key).int for key in keys]
        always, ever = bits[0], 0
        for number in bits:
            always, ever = always & number, ever | number

        assert {len(key) for key in keys} == {36}
        assert (always ^ ever).bit_count() == 122

    @pytest.mark.parametrize("length", [0, 15, 17])
    def test_it_takes_16_bytes(self, length: int) -> None:
        """
        Less would be guessable, more would be cut.
        """
        with pytest.raises(ConfigurationError, match="16 random bytes"):
            mint_from(bytes(length))


class TestDerive:
    @pytest.mark.requirement("B08")
    def test_is_64_lower_case_hex_digits(self) -> None:
        """
        Both forms give text that fits any column for keys.
        """
        assert re.fullmatch("[0-9a-f]{64}", derive(**FIELDS))
        assert re.fullmatch("[0-9a-f]{64}", derive_colon(**COLON_FIELDS))

    @pytest.mark.parametrize(("make", "fields"), [(derive, FIELDS), (derive_colon, COLON_FIELDS)])
    @pytest.mark.requirement("B06")
    def test_takes_its_five_fields_by_name_and_no_others(self, make: Any, fields: dict[str, Any]) -> None:
        """
        A field that is missing, or one too many, is an error and not a default.
        """
        assert make(**fields)
        for missing in fields:
            with pytest.raises(TypeError, match=missing):
                make(**{name: value for name, value in fields.items() if name != missing})
        with pytest.raises(TypeError):
            make(**fields, timestamp=1)
        with pytest.raises(TypeError):
            make(*fields.values())

    @pytest.mark.requirement("B07")
    def test_the_colon_form_is_the_documented_one(self) -> None:
        """
        Worker, run, turn, tool and input hash, in this order, colons between, SHA-256.
        """
        text = "w-1:r-1:3:charge:" + hashlib.sha256(b'{"a":1,"b":2}').hexdigest()

        assert hashlib.sha256(text.encode()).hexdigest() == derive_colon(**COLON_FIELDS)

    @pytest.mark.requirement("B10")
    def test_any_changed_field_changes_the_key(self) -> None:
        """
        Another worker, run, turn, tool or input is another call.
        """
        changes: dict[str, Any] = {
            "worker": "w-2",
            "run": "r-2",
            "turn": 4,
            "tool": "refund",
            "input": {"user": "u-1", "amount": 1375},
        }
        keys = {derive(**FIELDS)} | {derive(**{**FIELDS, name: value}) for name, value in changes.items()}

        assert len(keys) == 6

    @pytest.mark.requirement("B05")
    def test_neither_the_clock_nor_chance_matters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The same call at another time and with other dice gives the same key.
        """
        random.seed(1)
        first = derive(**FIELDS)
        for clock in ("time", "time_ns", "monotonic"):
            monkeypatch.setattr(time, clock, lambda: 4_000_000_000)
        random.seed(2)

        assert first == derive(**FIELDS)

    @pytest.mark.requirement("C02")
    def test_a_restarted_process_makes_the_same_key_from_what_was_stored(self, tmp_path: Path) -> None:
        """
        The stored operation is enough: a new process rebuilds the key from it.
        """
        stored = tmp_path / "operation.json"
        stored.write_text(json.dumps(FIELDS), encoding="utf-8")
        program = (
            "import json, sys; from onceward._core.key_derivation import derive; "
            "print(derive(**json.load(open(sys.argv[1], encoding='utf-8'))))"
        )
        again = subprocess.run([sys.executable, "-c", program, stored], capture_output=True, text=True, check=True)

        assert derive(**FIELDS) == again.stdout.strip()

    def test_a_turn_counts_by_its_text(self) -> None:
        """
        A turn that was stored as text and came back is the same turn.
        """
        assert derive(**FIELDS) == derive(**{**FIELDS, "turn": "3"})
        assert derive_colon(**COLON_FIELDS) == derive_colon(**{**COLON_FIELDS, "turn_seq": "3"})

    @pytest.mark.requirement("C19")
    @pytest.mark.fault("keys-joined-plainly")
    def test_no_two_calls_share_a_key_among_all_short_ones(self) -> None:
        """
        Every call whose fields are a letter, a separator, or both: each with a key of its own.
        """
        calls = list(product(["a", ":", "a:", ":a", "a:a"], repeat=4))
        keys = {derive(worker=one[0], run=one[1], turn=one[2], tool=one[3], input=None) for one in calls}

        assert len(keys) == len(calls) == 625

    @pytest.mark.requirement("C19")
    @given(*[st.tuples(*[st.text(":a1", min_size=1, max_size=3)] * 4)] * 2)
    def test_two_calls_never_share_a_key(self, one: tuple[str, ...], other: tuple[str, ...]) -> None:
        """
        ("a:b", "c") and ("a", "b:c") are two calls: separators inside a field change nothing.
        """
        names = ("worker", "run", "turn", "tool")
        keys = [derive(**dict(zip(names, fields, strict=True)), input=None) for fields in (one, other)]  # type: ignore[arg-type]

        assert (one == other) is (keys[0] == keys[1])

    @pytest.mark.parametrize(
        ("change", "advice"),
        [
            ({"worker": ""}, "worker is empty"),
            ({"run": 5}, "run is a int and must be a str"),
            ({"tool": None}, "tool is None and must be a str"),
            ({"tool": "\ud800"}, "tool contains half a character"),
            ({"turn": -1}, "turn is negative"),
            ({"turn": True}, "turn is a bool"),
            ({"turn": 1.0}, "turn is a float"),
            ({"turn": ""}, "turn is empty"),
        ],
    )
    def test_a_field_that_tells_nothing_is_refused(self, change: dict[str, Any], advice: str) -> None:
        """
        Each field must be there and have one spelling.
        """
        with pytest.raises(KeyInvalid, match=advice):
            derive(**{**FIELDS, **change})

    def test_an_input_without_a_form_is_refused(self) -> None:
        """
        What cannot be compared cannot be part of a key.
        """
        with pytest.raises(RequestInvalid, match=r"^\$\.x "):
            derive(**{**FIELDS, "input": {"x": float("nan")}})

    @pytest.mark.parametrize("name", sorted(COLON_FIELDS))
    def test_the_colon_form_refuses_colons_in_its_fields(self, name: str) -> None:
        """
        A colon inside a field would let two calls share a key.
        """
        with pytest.raises(KeyInvalid, match=f"{name} has a colon"):
            derive_colon(**{**COLON_FIELDS, name: "a:b"})


class TestDownstreamKey:
    LIMITS = {"stripe": 255, "adyen": 64, "square": 45, "worldline": 40, "uuid": 36}

    def test_every_profile_has_a_limit_that_is_tested(self) -> None:
        """
        A new profile gets its limit here.
        """
        assert set(self.LIMITS) == set(PROFILES)

    @pytest.mark.parametrize("profile", PROFILES)
    def test_a_key_fits_its_provider_and_is_always_the_same(self, profile: str) -> None:
        """
        Within the limit, plain characters, at least 128 bits (a UUID has 122), and the same on every call.
        """
        key = downstream_key(bytes(32), profile)

        assert key == downstream_key(bytes(32), profile)
        assert len(key) <= self.LIMITS[profile]
        assert re.fullmatch("[A-Za-z0-9_-]+", key)
        assert len(key.replace("-", "")) * 4 >= 128

    def test_every_record_and_every_provider_has_its_own(self) -> None:
        """
        No provider learns a key that means something to another.
        """
        keys = {downstream_key(bytes([byte]) * 32, profile)[:32] for byte in range(64) for profile in PROFILES}

        assert 64 * len(PROFILES) == len(keys)

    def test_the_uuid_is_one(self) -> None:
        """
        Version 5 and the variant of RFC 4122, so that strict readers take it.
        """
        made = uuid.UUID(downstream_key(bytes(32), "uuid"))

        assert (made.version, made.variant) == (5, uuid.RFC_4122)

    def test_an_unknown_profile_is_refused_with_the_list(self) -> None:
        """
        The error names the profiles that there are.
        """
        with pytest.raises(ConfigurationError, match="stripe, adyen, square, worldline, uuid"):
            downstream_key(bytes(32), "paypal")
        with pytest.raises(ConfigurationError, match="32 bytes"):
            downstream_key(b"short", "stripe")


class TestFingerprint:
    def test_is_a_scheme_byte_and_a_hash_behind_a_prefix(self) -> None:
        """
        The formulas as they are written down.
        """
        form = b'{"a":1}'

        assert b"\x01" + hashlib.sha256(b"onceward/fingerprint/1\0" + form).digest() == fingerprint({"a": 1.0})
        assert b"\x02" + hashlib.sha256(b"onceward/fingerprint/2\0" + form).digest() == fingerprint_raw(form)
        assert b"\x03" + hmac.digest(SECRET, b"onceward/fingerprint/3\0" + form, "sha256") == fingerprint_keyed(
            {"a": 1}, SECRET
        )
        assert fingerprint is fingerprint_canonical

    def test_a_keyed_one_needs_its_secret(self) -> None:
        """
        Another secret gives another fingerprint, and a short secret is refused.
        """
        assert fingerprint_keyed("0000", SECRET) != fingerprint_keyed("0000", SECRET[::-1])
        with pytest.raises(ConfigurationError, match="16 or more"):
            fingerprint_keyed("0000", b"short")

    def test_unknown_schemes_are_seen(self) -> None:
        """
        What a later version wrote is recognised as unknown, and so is what is cut or empty.
        """
        assert all(map(known_scheme, (fingerprint(1), fingerprint_raw(b""), fingerprint_keyed(1, SECRET))))
        assert not any(map(known_scheme, (b"", b"\x00" * 33, b"\x04" * 33, b"\x01" * 32, b"\x01" * 34)))
