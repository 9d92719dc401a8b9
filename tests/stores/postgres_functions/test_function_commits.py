"""Claim and settle are one transaction: what is left out, forgotten or wrong commits nothing."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from functions_support import CREATED, FINGERPRINT, REQUEST, SCOPE, Connection, charge, claim, rows, settle

from onceward import Gate
from onceward._core.terms import DEFAULT_TERMS
from servers.postgres import needed

needed()

NotHeld = psycopg.errors.ObjectNotInPrerequisiteState
MEBIBYTE = 1_048_576


def left(url: str) -> tuple[int, int]:
    """How many records and charges there are."""
    [counts] = rows(url, "SELECT (SELECT count(*) FROM onceward_records), (SELECT count(*) FROM charges)")
    return counts[0], counts[1]


@pytest.mark.fault("functions-commit-without-settle")
def test_a_claim_that_was_not_settled_cannot_be_committed(url: str, sql: Connection) -> None:
    """
    Neither alone in autocommit, nor with rows, nor when the settle was rolled back: the commit says so.
    """
    claim(sql, "k")
    sql.execute("INSERT INTO charges VALUES ('k', 'SQL')")
    with pytest.raises(NotHeld, match="claimed in this transaction and not settled"):
        sql.commit()
    claimed = claim(sql, "k")
    with pytest.raises(ZeroDivisionError), sql.transaction():
        settle(sql, claimed)
        raise ZeroDivisionError
    with pytest.raises(NotHeld, match="not settled"):
        sql.commit()
    sql.rollback()
    sql.autocommit = True
    with pytest.raises(NotHeld, match="not settled"):
        claim(sql, "k")
    sql.autocommit = False

    assert left(url) == (0, 0)
    assert charge(sql, "k") == "SQL"


def test_a_claim_that_was_rolled_back_to_a_savepoint_is_gone(url: str, sql: Connection) -> None:
    """
    The effect failed and its savepoint undid the claim as well: the transaction goes on, and the key is free.
    """
    sql.execute("INSERT INTO charges VALUES ('before', 'SQL')")
    with pytest.raises(ZeroDivisionError), sql.transaction():
        claim(sql, "k")
        raise ZeroDivisionError
    sql.commit()

    assert left(url) == (0, 1)
    assert charge(sql, "k") == "SQL"


@pytest.mark.fault("functions-own-claim-runs-again")
def test_a_second_claim_in_the_same_transaction_is_in_flight(sql: Connection) -> None:
    """
    The first has not settled, so nobody may run it again; once it has, the second replays.
    """
    first, second = claim(sql, "k"), claim(sql, "k")
    assert (first.verdict, second.verdict) == ("fresh", "in_flight")
    settle(sql, first)
    third = claim(sql, "k")

    assert (third.verdict, third.value) == ("replay", CREATED)
    assert second.detail == "it was claimed earlier in this very transaction"


def test_python_taking_over_an_unsettled_claim_commits_nothing(url: str, sql: Connection) -> None:
    """
    A gate in the same transaction cannot know that the claim is not a lapsed one: the commit is refused all the same.
    """
    claim(sql, "k")
    with Gate(url, scope=SCOPE) as gate:
        gate.atomic(sql, "k", lambda: CREATED, request=REQUEST)
        with pytest.raises(NotHeld, match="not settled"):
            sql.commit()

    assert left(url) == (0, 0)


@pytest.mark.fault("functions-settle-in-another-transaction")
def test_a_claim_is_settled_once_and_in_its_own_transaction(url: str, sql: Connection) -> None:
    """
    Twice, in a later transaction, with something else or with nothing: refused, and the record is as it was.
    """
    claimed = claim(sql, "k")
    settle(sql, claimed)
    with pytest.raises(NotHeld, match="does not stand any more"), sql.transaction():
        settle(sql, claimed, "again")
    sql.commit()
    unsettled = claim(sql, "other")
    sql.rollback()
    claim(sql, "other")
    for wrong in (claimed.claim, unsettled.claim, b"", bytes(56), None):
        with pytest.raises(NotHeld, match="not a claim of this transaction"), sql.transaction():
            sql.execute("SELECT onceward_settle(%s, '1')", (wrong,))
    sql.rollback()

    assert rows(url, "SELECT result FROM onceward_records") == [(b'{"status":"created"}',)]


def test_what_settle_gives_back_is_what_a_replay_gives(sql: Connection) -> None:
    """
    Equal by construction, for JSON, for NULL and for bytes.
    """
    for key, text in (("object", '{ "b" : 1.50, "a" : [ "x y" ] }'), ("null", None), ("text", '"a\\u00e9 b"')):
        claimed = claim(sql, key)
        [first] = sql.execute("SELECT onceward_settle(%s, %s::json)::text", (claimed.claim, text)).fetchone() or ()
        again = claim(sql, key)

        assert again.result == first.encode()
        assert json.loads(first) == again.value == (None if text is None else json.loads(text))
    claimed = claim(sql, "bytes")
    [first] = sql.execute("SELECT onceward_settle_bytes(%s, '\\x00ff')", (claimed.claim,)).fetchone() or ()
    again = claim(sql, "bytes")

    assert (first, again.codec, again.result, again.value) == (b"\x00\xff", "bytes/1", b"\x00\xff", None)


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        (
            f"onceward_settle(%s, to_json(repeat('x', {MEBIBYTE - 1})))",
            psycopg.errors.ProgramLimitExceeded,
            "1048577 bytes",
        ),
        (
            f"onceward_settle(%s, to_json(repeat('x', {4 * MEBIBYTE})))",
            psycopg.errors.ProgramLimitExceeded,
            "too large",
        ),
        (
            f"onceward_settle_bytes(%s, repeat('x', {MEBIBYTE + 1})::bytea)",
            psycopg.errors.ProgramLimitExceeded,
            "1048577",
        ),
        (
            "onceward_settle(%s, (repeat('[', 129) || repeat(']', 129))::json)",
            psycopg.errors.InvalidParameterValue,
            "128 levels",
        ),
        ("onceward_settle(%s, '[1e400]'::json)", psycopg.errors.InvalidParameterValue, "no double"),
        ("onceward_settle(%s, '\"\\ud800\"'::json)", psycopg.errors.InvalidTextRepresentation, "json"),
        ("onceward_settle_bytes(%s, NULL)", psycopg.errors.NullValueNotAllowed, "result is NULL"),
        ("onceward_settle(%s, '1', retain => NULL)", psycopg.errors.InvalidParameterValue, "retain"),
        ("onceward_settle(%s, '1', retain => '0')", psycopg.errors.InvalidParameterValue, "retain"),
        ("onceward_settle(%s, '1', retain => '-1 day')", psycopg.errors.InvalidParameterValue, "retain"),
        ("onceward_settle(%s, '1', retain => '11 years')", psycopg.errors.InvalidParameterValue, "ten years"),
        ("onceward_settle(%s, '1', tombstone => '-1 s')", psycopg.errors.InvalidParameterValue, "tombstone"),
        ("onceward_settle(%s, '1', tombstone => NULL)", psycopg.errors.InvalidParameterValue, "tombstone"),
    ],
)
def test_what_cannot_be_settled_is_refused_and_leaves_nothing(
    url: str, sql: Connection, statement: str, error: type[Exception], words: str
) -> None:
    """
    Too large, too deep, not JSON as Python reads it, or no time at all: an error that says so, and no record.
    """
    claimed = claim(sql, "k")
    sql.execute("INSERT INTO charges VALUES ('k', 'SQL')")
    with pytest.raises(error, match=words):
        sql.execute(f"SELECT {statement}".encode(), (claimed.claim,))
    sql.rollback()

    assert left(url) == (0, 0)


def test_the_largest_result_and_the_deepest_are_kept(url: str, sql: Connection) -> None:
    """
    A mebibyte, and 128 levels: Python reads both.
    """
    whole = claim(sql, "large")
    sql.execute(f"SELECT onceward_settle(%s, to_json(repeat('x', {MEBIBYTE - 2})))".encode(), (whole.claim,))
    deep = claim(sql, "deep")
    sql.execute("SELECT onceward_settle(%s, (repeat('[', 128) || repeat(']', 128))::json)", (deep.claim,))
    sql.commit()
    with Gate(url, scope=SCOPE) as gate:
        read = [gate.run(key, lambda: None, request=REQUEST) for key in ("large", "deep")]

    assert (len(read[0]), json.dumps(read[1])) == (MEBIBYTE - 2, "[" * 128 + "]" * 128)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"fingerprint": None}, psycopg.errors.InvalidParameterValue, "not a fingerprint"),
        ({"fingerprint": FINGERPRINT[1:]}, psycopg.errors.InvalidParameterValue, "not a fingerprint"),
        ({"fingerprint": b"\x09" + FINGERPRINT[1:]}, psycopg.errors.InvalidParameterValue, "not a fingerprint"),
        ({"operation": None}, psycopg.errors.NullValueNotAllowed, "operation is NULL"),
    ],
)
def test_what_cannot_be_claimed_is_refused(sql: Connection, given: dict[str, Any], error: Any, words: str) -> None:
    """
    The program's own mistakes are errors, with what to do.
    """
    with pytest.raises(error, match=words):
        claim(sql, "k", **given)


def test_a_bad_key_is_an_answer_and_the_transaction_goes_on(sql: Connection) -> None:
    """
    Keys come from clients: the verdict says what is wrong, the key itself is not shown, and nothing was claimed.
    """
    answers = {key: claim(sql, key) for key in (None, "", "a b", "Zoë", "x" * 256, "live:k")}

    assert [one.verdict for one in answers.values()] == ["key_missing"] * 2 + ["key_invalid"] * 4
    assert all(one.claim is None and one.detail for one in answers.values())
    assert not any(key and key in answers[key].detail for key in ("a b", "Zoë"))
    assert charge(sql, "k") == "SQL"


@pytest.mark.fault("functions-retention-ignored")
def test_retention_is_part_of_what_is_settled(url: str, sql: Connection) -> None:
    """
    As the caller said, or Python's defaults; without a tombstone the key is free when its time is over.
    """
    settle(sql, claim(sql, "default"))
    settle(sql, claim(sql, "brief"), retain="10 minutes", tombstone="1 hour")
    settle(sql, claim(sql, "again"), retain="10 minutes", tombstone="0")
    sql.commit()
    spans = rows(url, "SELECT replay_until - settled_at, forget_at - settled_at FROM onceward_records ORDER BY key")
    rows(
        url,
        """UPDATE onceward_records SET replay_until = replay_until - 601000000, forget_at = forget_at - 601000000
        WHERE key <> 'test:default'""",
    )
    later = [claim(sql, key).verdict for key in ("default", "brief", "again")]

    assert spans == [
        (600_000_000, 600_000_000),
        (600_000_000, 4_200_000_000),
        (DEFAULT_TERMS.retain, DEFAULT_TERMS.forget),
    ]
    assert later == ["replay", "expired", "fresh"]
