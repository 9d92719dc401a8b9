"""What a claim in SQL answers, and what it leaves, for every record there can be: as `record.py` decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest
from functions_support import CREATED, FINGERPRINT, REQUEST, SCOPE, Connection, claim, rows, settle

from onceward import Gate, KeyReused
from onceward._core import record
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.keys import record_id
from onceward._core.record import NOW, Claimant, Record, Refuse, Replay, Start, Wait, Write
from onceward._core.terms import DEFAULT_TERMS
from onceward.stores import Store, open_store
from servers.postgres import needed

needed()

HOUR = 3_600_000_000
SPANS = (HOUR, -HOUR)
KEY = "decided"
ID = record_id("key", SCOPE, f"test:{KEY}")
OTHER = fingerprint_canonical(b"another request")
FAILURE = b'{"type":"CardDeclined","message":"no funds","code":"card_declined"}'
CLAIMANT = Claimant(
    ID, "key", SCOPE, f"test:{KEY}", "charge", None, "atomic", FINGERPRINT, DEFAULT_TERMS.lease, HOUR, False
)
CARRIED = ("id", "kind", "scope", "key", "operation", "family", "guarantee", "doubt", "fingerprint", "attempt")
ENDED = (*CARRIED, "state", "codec", "result", "error", "holder")

STANDING = Write(
    *(
        ID,
        "key",
        SCOPE,
        f"test:{KEY}",
        "elsewhere",
        b"f" * 32,
        "claimed",
        "atomic",
        0,
        FINGERPRINT,
        b"v" * 16,
        b"t" * 16,
    ),
    *(1, 1, NOW, None, -HOUR, None, None, None, None, None),
    rise=False,
    holder=b"somebody",
)
RESULT = b'{"charge":"ch_1"}'


def standing() -> Iterator[Write]:
    """Every record that `decide` can tell apart: in each state, over or not, of the same request or another."""
    guarantees = [str(one) for one in record.Guarantee]
    kept = (("json/1", RESULT, None), ("bytes/1", RESULT, None), (None, None, FAILURE), (None, None, None))
    ones = [
        *(
            {"guarantee": one, "doubt": doubt, "lease": lease}
            for one, doubt, lease in product(guarantees, (0, 1), SPANS)
        ),
        *({"state": "in_doubt", "guarantee": one, "doubt": 1, "lease": None} for one in guarantees),
        {"state": "released", "lease": None},
        *(
            {"state": "settled", "lease": None, "settled_at": NOW, "replay": replay}
            | dict(zip(("codec", "result", "error"), ending, strict=True))
            for replay, ending in product((*SPANS, None), kept)
        ),
    ]
    for number, (one, forget, fingerprint) in enumerate(product(ones, (*SPANS, None), (FINGERPRINT, OTHER))):
        more = {
            "forget": forget,
            "fingerprint": fingerprint,
            "attempt": 1 + number % 3,
            "fence": (1, 2**60)[number // 7 % 2],
        }
        yield STANDING._replace(**one, **more)


def word_for(decision: record.Decision) -> str:
    """The verdict that stands for a decision."""
    match decision:
        case Start():
            return "fresh"
        case Replay(found):
            return "replay" if found.error is None else "failed"
        case Wait():
            return "in_flight"
        case Refuse(why):
            return "key_reused" if why is record.Refusal.REUSED else why.value


def compared(found: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a record or of a write."""
    return {name: getattr(found, name) for name in fields}


@pytest.mark.fault("functions-lapsed-blind-runs")
@pytest.mark.fault("functions-forgotten-is-not-absent")
@pytest.mark.fault("functions-fence-repeats")
def test_every_record_is_decided_upon_as_python_does(url: str, sql: Connection) -> None:
    """
    Whatever stands there: the verdict is that of `decide`; what is written is what `claim` and `settle` write;
    the fence rises, also above what was purged.
    """
    store = open_store(url)
    verdicts: Counter[str] = Counter()
    for number, write in enumerate(standing()):
        floor = (0, 2**61)[number // 5 % 2]
        sql.execute("DELETE FROM onceward_records")
        sql.execute("UPDATE onceward_meta SET value = %s WHERE name = 'fence_floor'", (floor,))
        sql.commit()
        found = store.put(write, None).record
        assert found is not None
        decision = record.decide(found, CLAIMANT)
        answer = claim(sql, KEY)
        verdicts[answer.verdict] += 1

        assert (write, answer.verdict) == (write, word_for(decision))
        if isinstance(decision, Start):
            check_run(sql, store, answer, decision, floor)
        else:
            assert (answer.attempt, answer.fence, answer.claim) == (found.attempt, found.fence, None)
            sql.rollback()
            assert unchanged(store.load(ID), found)
        check_shown(sql, store)
    store.close()

    assert len(verdicts) == 8
    assert min(verdicts.values()) > 1


def check_run(sql: Connection, store: Store, answer: Any, decision: Start, floor: int) -> None:
    """A fresh claim, settled and committed: the record that Python's moves would have left."""
    claimed = record.claim(CLAIMANT, decision, token=b"t" * 16, version=b"w" * 16)
    held = record.record_from_write(claimed, now=1, fence=answer.fence)
    ended = record.settle(
        held,
        version=b"x" * 16,
        replay=DEFAULT_TERMS.retain,
        forget=DEFAULT_TERMS.forget,
        codec="json/1",
        result=b'{"status":"created"}',
    )
    settle(sql, answer)
    sql.commit()
    kept = store.load(ID)
    assert kept is not None

    assert compared(kept, ENDED) == compared(ended, ENDED)
    assert answer.attempt == claimed.attempt
    assert kept.fence == answer.fence >= max(claimed.fence, floor + 1)
    assert kept.settled_at is not None
    assert kept.settled_at >= kept.first_at > 0
    assert 0 <= DEFAULT_TERMS.retain - (kept.replay_left or 0) < HOUR
    assert 0 <= DEFAULT_TERMS.forget - (kept.forget_left or 0) < HOUR
    assert kept.lease_left is None
    assert len({kept.version, kept.token, b"v" * 16, b"t" * 16}) == 4


def unchanged(kept: Record | None, found: Record) -> bool:
    """Whether a record is as it was, but for the time that went by."""
    still = ("age", "lease_left", "replay_left", "forget_left")
    return kept is not None and kept._replace(**compared(found, still)) == found


def check_shown(sql: Connection, store: Store) -> None:
    """The view's word for the state is the one that `onceward records` has."""
    kept = store.load(ID)
    assert kept is not None
    shown = sql.execute("SELECT state, digest, scope, key, attempt, fence FROM onceward_records_readable").fetchall()
    sql.rollback()

    assert shown == [(record.shown_state(kept), ID.hex()[:12], SCOPE, f"test:{KEY}", kept.attempt, kept.fence)]


@pytest.mark.parametrize(
    ("column", "value"), [("state", "'archived'"), ("fingerprint", "'\\x09'"), ("fingerprint", "''")]
)
def test_a_record_of_a_newer_version_is_refused(url: str, sql: Connection, column: str, value: str) -> None:
    """
    Half understanding it would be worse than an error; nothing is changed.
    """
    settle(sql, claim(sql, KEY))
    sql.commit()
    rows(url, f"UPDATE onceward_records SET {column} = {value}")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="newer version"):
        claim(sql, KEY)


def test_what_people_read_is_text_words_and_times(url: str, sql: Connection) -> None:
    """
    JSON as text, bytes by their number, a failure in its words; what is not UTF-8 hides nothing but itself.
    """
    sql.execute('SELECT onceward_settle(%s, \'{"name": "Zoë"}\')', (claim(sql, "json").claim,))
    sql.execute("SELECT onceward_settle_bytes(%s, '\\xff00')", (claim(sql, "bytes").claim,))
    settle(sql, claim(sql, "failed"))
    settle(sql, claim(sql, "damaged"))
    sql.commit()
    rows(url, f"UPDATE onceward_records SET codec = NULL, error = '{FAILURE.decode()}' WHERE key = 'test:failed'")
    rows(url, "UPDATE onceward_records SET result = '\\xff' WHERE key = 'test:damaged'")
    shown = rows(
        url,
        """SELECT key, state, result, result_bytes, error, now() - settled_at < '1 hour', replays_until - settled_at
        FROM onceward_records_readable ORDER BY key""",
    )

    assert [one[:5] for one in shown] == [
        ("test:bytes", "settled", None, 2, None),
        ("test:damaged", "settled", None, 1, None),
        ("test:failed", "settled", None, 20, FAILURE.decode()),
        ("test:json", "settled", '{"name":"Zoë"}', 15, None),
    ]
    assert {str(one[6]) for one in shown} == {"1 day, 0:00:00"}
    assert all(one[5] for one in shown)


def test_a_claim_says_when_to_come_back(url: str, sql: Connection) -> None:
    """
    Held by a lease of Python's: as long as nothing was heard of it, at least a second, at most until the lease ends.
    """
    store = open_store(url)
    for lease, least, most in ((60_000_000, 1, 1.5), (20_000_000, 19, 20), (500_000, 0, 0.5)):
        rows(url, "TRUNCATE onceward_records")
        held = CLAIMANT._replace(guarantee="blind", lease=lease)
        store.put(record.claim(held, record.FRESH, token=b"t" * 16, version=b"v" * 16), None)
        answer = claim(sql, KEY)
        sql.rollback()

        assert answer.verdict in ("in_flight", "in_doubt")
        assert answer.verdict == "in_doubt" or least <= answer.retry_after <= most
    store.close()


def test_both_languages_replay_each_other(url: str, sql: Connection) -> None:
    """
    What one settled, the other replays, and each is refused the other's key for another request.
    """
    with Gate(url, scope=SCOPE) as gate:
        for first, second in product(("SQL", "Python"), repeat=2):
            key = f"{first}-{second}"
            answers = []
            for who in (first, second):
                if who == "SQL":
                    answer = claim(sql, key)
                    answers.append(settle(sql, answer) if answer.verdict == "fresh" else answer.value)
                else:
                    with sql.transaction():
                        answers.append(gate.atomic(sql, key, lambda: CREATED, request=REQUEST))
            sql.commit()
            assert answers == [CREATED, CREATED]
            assert claim(sql, key, fingerprint=OTHER).verdict == "key_reused"
            sql.rollback()
            with pytest.raises(KeyReused):
                gate.atomic(sql, key, lambda: CREATED, request=b"another request")
            sql.rollback()
