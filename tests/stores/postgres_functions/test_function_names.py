"""Ids, fingerprints, keys and stored forms in PostgreSQL are Python's, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from functions_support import Connection, claim, database_with_functions, settle
from hypothesis import given
from hypothesis import strategies as st

from onceward._core.codec import encode
from onceward._core.errors import OncewardError
from onceward._core.fingerprint import fingerprint_canonical, text_fields
from onceward._core.keys import record_id
from onceward.errors import RequestInvalid
from onceward.gate.call_factory import CallFactory
from servers.postgres import DEBIAN_15, needed, throwaway

needed()

VECTORS = json.loads((Path(__file__).parents[2] / "core" / "golden" / "vectors.json").read_text(encoding="utf-8"))
SCOPES = ("live:acme", "test:acme", "acme", "live:", "test", ":", "live", "live:test:x")
KEY_CHARACTERS = st.sampled_from(
    ["a", "Z", "~", "!", ":", "live:", "test:", " ", "\t", "\x7f", "\x1f", "é", "😀", "x" * 254]
)


def one(connection: Connection, sql: str, *parameters: Any) -> Any:
    """The one value of a statement."""
    [value] = connection.execute(sql.encode(), parameters).fetchone() or ()
    return value


def check_vectors(connection: Connection) -> None:
    """Every golden vector that the functions know of."""
    requests = [
        (None if vector["value"] == "None" else eval(vector["value"]), vector["gives"])
        for vector in VECTORS["fingerprint"]
        if vector["value"] == "None" or vector["value"].startswith("b")
    ]
    fields = [
        ([part for field in vector["fields"].items() for part in field], vector["gives"])
        for vector in VECTORS["text_fields"]
    ]
    ids = [(vector["parts"], vector["gives"]) for vector in VECTORS["record_id"] if vector["parts"][0] == "key"]

    assert [one(connection, "SELECT onceward_fingerprint(%s)", of).hex() for of, _ in requests] == [
        gives for _, gives in requests
    ]
    assert [one(connection, "SELECT onceward_fields(VARIADIC %s::text[])", of).hex() for of, _ in fields] == [
        gives for _, gives in fields
    ]
    # Scopes with an environment put it in front of the key, which the vectors do not.
    for (kind, scope, key), _ in ids:
        stored = f"live:{key}"
        assert one(connection, "SELECT onceward_record_id(%s, %s)", scope, key) == record_id(kind, scope, stored)
    assert len(requests) == len(fields) - 2 == 5


@pytest.mark.fault("functions-id-without-lengths")
@pytest.mark.fault("functions-fingerprint-of-base64")
def test_the_golden_vectors_hold_in_postgresql(sql: Connection) -> None:
    """
    The same file that holds Python to what users have stored.
    """
    check_vectors(sql)


@pytest.mark.slow
@pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="PostgreSQL 15 is not installed here")
def test_they_hold_on_postgresql_15_where_everything_works_as_well() -> None:
    """
    The oldest server that is supported: installed, claimed, settled and replayed.
    """
    server = throwaway(DEBIAN_15)
    with database_with_functions(server) as url, psycopg.connect(url) as connection:
        check_vectors(connection)
        claimed = claim(connection, "k")
        settle(connection, claimed)
        connection.commit()
        again = claim(connection, "k")
        connection.rollback()
        shown = one(connection, "SELECT state || ' ' || result FROM onceward_records_readable")
        connection.rollback()

        assert (again.verdict, again.value, shown) == ("replay", {"status": "created"}, 'settled {"status":"created"}')
    server.stop()


@pytest.mark.fault("functions-json-not-compact")
@pytest.mark.parametrize("number", range(len(VECTORS["stored"])))
def test_a_result_is_stored_as_python_stores_it(sql: Connection, number: int) -> None:
    """
    JSON without space between its parts, whoever spelled it: the bytes of the codec's own vectors.
    """
    vector = VECTORS["stored"][number]
    value = eval(vector["value"])
    spellings = [json.dumps(value, ensure_ascii=False, indent=indent) for indent in (None, 3)]
    for key, text in enumerate(spellings):
        claimed = claim(sql, f"k{key}")
        sql.execute("SELECT onceward_settle(%s, %s::json)", (claimed.claim, text))
    kept = sql.execute("SELECT codec, result FROM onceward_records").fetchall()

    assert kept == [("json/1", bytes.fromhex(vector["gives"]))] * 2
    assert encode(value).data == kept[0][1]


def test_keys_and_scopes_are_judged_as_python_judges_them(sql: Connection) -> None:
    """
    Refused where Python refuses, with the same code; otherwise the same id: for keys of every bad kind.
    """

    @given(st.sampled_from(SCOPES), st.lists(KEY_CHARACTERS, max_size=3).map("".join))
    def judged(scope: str, key: str) -> None:
        factory = CallFactory(scope, environment=None, listeners=())
        try:
            expected: tuple[str | None, bytes | None] = (None, record_id("key", scope, factory.stored_key(key)))
        except OncewardError as refused:
            expected = (refused.code, None)
        [(code, stored, fault)] = sql.execute(
            "SELECT code, stored, fault FROM onceward_stored_key(%s, %s)", (scope, key)
        ).fetchall()
        found = None if stored is None else one(sql, "SELECT onceward_record_id(%s, %s)", scope, key)

        assert (code, found) == expected
        assert (fault is None) == (code is None)

    judged()


@given(st.dictionaries(st.text("aé😀～ ", max_size=2), st.none() | st.text("bé😀\n", max_size=3), max_size=4))
def test_no_two_lists_of_fields_give_the_same_bytes(fields: dict[str, str | None]) -> None:
    """
    Their bytes can be read back: lengths stand in front, and nothing is left over.
    """
    data, read = text_fields(fields), {}

    def part() -> str | None:
        nonlocal data
        length = int.from_bytes(data[:8], "big", signed=True)
        text, data = (None, data[8:]) if length < 0 else (data[8 : 8 + length].decode(), data[8 + length :])
        return text

    while data:
        name = part()
        read[name] = part()

    assert read == fields


@pytest.mark.parametrize("fields", [{"a": 1}, {1: "a"}, {"a": "\ud800"}])
def test_fields_that_are_no_texts_are_refused(fields: Any) -> None:
    """
    A number could be spelled in many ways, and half a character in none.
    """
    with pytest.raises(RequestInvalid):
        text_fields(fields)


@pytest.mark.parametrize("fields", [["a"], ["a", "1", "a", "2"], [None, "1"], ["a", "1", "b"]])
def test_fields_that_are_no_pairs_are_refused_by_the_database(sql: Connection, fields: list[str | None]) -> None:
    """
    A name without its text, one that occurs twice, or none at all.
    """
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="field"):
        one(sql, "SELECT onceward_fields(VARIADIC %s::text[])", fields)


def test_pythons_fields_are_the_databases(sql: Connection) -> None:
    """
    One request, spelled in both languages in different orders, has one fingerprint.
    """
    here = fingerprint_canonical(text_fields({"customer": "7", "amount": "12.5000", "note": None}))
    there = one(
        sql, "SELECT onceward_fingerprint(onceward_fields('note', NULL, 'amount', 12.5000::text, 'customer', '7'))"
    )

    assert here == there


def test_a_scope_that_cannot_be_one_is_refused(sql: Connection) -> None:
    """
    It is the program's own, so it is an error and not an answer; the text of the scope is not shown.
    """
    for scope in (None, "", "a b", "Zoë", "x" * 256):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"^the scope ") as told:
            claim(sql, "k", scope=scope)
        sql.rollback()
        assert not scope or scope not in str(told.value)
    assert claim(sql, "k", scope="x" * 255).verdict == "fresh"
