"""The example `examples/postgresql/charge_create`: a stored procedure that charges once, with money as it should be."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from functions_support import rows

from servers.postgres import PostgresServer, needed

needed()

EXAMPLES = Path(__file__).parents[3] / "examples" / "postgresql"
PAGES = Path(__file__).parents[3] / "docs" / "how-to"
CALL = "SELECT response_status, response_body FROM charge_create(%s, %s, %s, %s)"
CREATED = (201, {"status": "created"})


@pytest.fixture
def shop(url: str) -> str:
    """The URL of a database with the procedure in it, and no charges."""
    rows(url, f"DROP TABLE IF EXISTS charge; {(EXAMPLES / 'charge_create.sql').read_text(encoding='utf-8')}")
    return url


@pytest.fixture
def caller(server: PostgresServer, shop: str) -> Iterator[str]:
    """The URL of a role that may call the procedure, and nothing else."""
    database = shop.rpartition("/")[2]
    with server.role("till", database=database):
        rows(shop, "GRANT EXECUTE ON FUNCTION charge_create TO till")
        yield server.url(database, user="till")


def create(url: str, key: str | None, amount: Any, *, customer: int | None = 7, receipt: str | None = None) -> Any:
    """Call the procedure, as a transaction by itself."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(CALL, (key, customer, amount, receipt)).fetchone()


@pytest.mark.requirement("E12", "E13")
@pytest.mark.fault("functions-example-rounds")
def test_amounts_are_decimals_of_four_places_and_what_is_none_is_refused(shop: str) -> None:
    """
    A tenth and two tenths are three tenths; four places and fifteen digits before them are kept; what has more,
    is no number or is a double changes nothing.
    """
    for number, amount in enumerate(
        (Decimal("0.1") + Decimal("0.2"), Decimal("12.5"), Decimal("999999999999999.9999"))
    ):
        assert create(shop, f"k{number}", amount) == CREATED
    for wrong in (Decimal("12.34567"), Decimal("1e15"), Decimal("NaN"), None):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most four places"):
            create(shop, "wrong", wrong)
    with pytest.raises(psycopg.errors.UndefinedFunction, match="double precision"):
        create(shop, "wrong", 0.1 + 0.2)
    kept = rows(shop, "SELECT amount::text FROM charge ORDER BY id")
    typed = rows(
        shop,
        """SELECT format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid = 'charge'::regclass AND attname = 'amount'""",
    )

    assert kept == [("0.3000",), ("12.5000",), ("999999999999999.9999",)]
    assert typed == [("numeric(19,4)",)]
    assert rows(shop, "SELECT count(*) FROM onceward_records") == [(3,)]


@pytest.mark.requirement("E25")
@pytest.mark.fault("functions-loser-is-refused")
def test_fast_path_fresh_path_and_loser_answer_in_one_shape(shop: str) -> None:
    """
    Eight at once under one key, and a retry long after: the same columns, the same types, the same values, one charge.
    """
    with ThreadPoolExecutor(8) as crowd:
        racers = list(crowd.map(lambda _: create(shop, "k", Decimal("1.00")), range(8)))
    late = create(shop, "k", Decimal("1.0000"))

    assert [*racers, late] == [CREATED] * 9
    assert rows(shop, "SELECT count(*) FROM charge") == [(1,)]


def test_a_violation_of_another_constraint_is_not_a_duplicate(shop: str) -> None:
    """
    It surfaces under its own name, and the claim is gone with it: the same key can be used for a corrected charge.
    """
    create(shop, "k1", Decimal("1.00"), receipt="R-1")
    with pytest.raises(psycopg.errors.UniqueViolation) as told:
        create(shop, "k2", Decimal("2.00"), receipt="R-1")
    with pytest.raises(psycopg.errors.CheckViolation) as negative:
        create(shop, "k3", Decimal("-1.00"))
    corrected = create(shop, "k2", Decimal("2.00"), receipt="R-2")

    assert told.value.diag.constraint_name == "uq_charge_receipt"
    assert negative.value.diag.constraint_name == "ck_charge_amount"
    assert corrected == CREATED
    assert rows(shop, "SELECT count(*) FROM charge") == [(2,)]


@pytest.mark.requirement("E26")
@pytest.mark.fault("functions-keyless-is-keyed")
def test_refusals_have_the_same_shape_and_a_keyless_call_is_never_keyed(shop: str) -> None:
    """
    No key, a bad one, one that was used for another request or has expired: told, and nothing is charged.
    """
    create(shop, "k", Decimal("1.00"))
    refused = [
        create(shop, None, Decimal("1.00")),
        create(shop, "", Decimal("1.00")),
        create(shop, "a b", Decimal("1.00")),
        create(shop, "k", Decimal("2.00")),
        create(shop, "k", Decimal("1.00"), customer=8),
    ]
    rows(shop, "UPDATE onceward_records SET replay_until = 1")
    refused.append(create(shop, "k", Decimal("1.00")))

    assert [status for status, _ in refused] == [400, 400, 400, 422, 422, 410]
    assert [body["error"] for _, body in refused] == [
        *("key_missing", "key_missing", "key_invalid", "key_reused", "key_reused", "expired")
    ]
    assert rows(shop, "SELECT count(*) FROM charge") == [(1,)]


@pytest.mark.fault("functions-example-with-callers-rights")
def test_execute_is_granted_and_the_tables_are_not(shop: str, caller: str) -> None:
    """
    A role that may call the procedure charges once; records, charges and the functions below are closed to it.
    """
    answers = [create(caller, "k", Decimal("1.00")) for _ in range(2)]
    for forbidden in (
        "SELECT * FROM charge",
        "INSERT INTO charge (customer_id, amount) VALUES (7, 1)",
        "SELECT * FROM onceward_records",
        "SELECT * FROM onceward_claim('test:charges', 'k2', onceward_fingerprint(NULL))",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            rows(caller, forbidden)

    assert answers == [CREATED, CREATED]
    assert rows(shop, "SELECT count(*) FROM charge") == [(1,)]


def test_the_procedure_joins_the_callers_transaction(shop: str) -> None:
    """
    Rolled back, nothing happened; committed with another row, both are there.
    """
    with psycopg.connect(shop) as connection:
        connection.execute(CALL, ("k", 7, Decimal("1.00"), None))
        connection.rollback()
        connection.execute("INSERT INTO charges VALUES ('besides', 'us')")
        [answer] = connection.execute(CALL, ("k", 7, Decimal("1.00"), None)).fetchall()

    assert answer == CREATED
    assert rows(shop, "SELECT (SELECT count(*) FROM charge), (SELECT count(*) FROM charges)") == [(1, 1)]


@pytest.mark.requirement("E10")
@pytest.mark.fault("functions-view-in-seconds")
def test_a_record_reads_as_key_status_body_and_time(shop: str) -> None:
    """
    In the view: the key as text, the status and the body that were answered, the time in UTC to the microsecond. The
    body may be missing; key, state and time never are.
    """
    create(shop, "k", Decimal("1.00"))
    [(key, status, body, recent, zone)] = rows(
        shop,
        """SELECT key, (result::json ->> 'status')::integer, result::json ->> 'body',
            clock_timestamp() - first_at BETWEEN '-1 minute' AND '10 minutes',
            pg_typeof(first_at)::text FROM onceward_records_readable""",
    )
    nullable = dict(
        rows(
            shop,
            """SELECT column_name, is_nullable = 'YES' FROM information_schema.columns
            WHERE table_name = 'onceward_records' AND column_name IN ('key', 'state', 'result', 'first_at')""",
        )
    )

    assert (key, status, body) == ("test:k", 201, '{"status":"created"}')
    assert (recent, zone) == (True, "timestamp with time zone")
    assert nullable == {"key": False, "state": False, "result": True, "first_at": False}


@pytest.mark.slow
def test_the_example_does_what_it_says_twice_over(server: PostgresServer, tmp_path: Path) -> None:
    """
    Run as a reader would, in an empty folder and on a database without our tables; and again, on what is there then.
    """
    server.execute("CREATE DATABASE example_shop")
    command = [sys.executable, "-W", "error", str(EXAMPLES / "charge_create.py"), server.url("example_shop")]
    done = [subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False) for _ in range(2)]
    server.execute("DROP DATABASE example_shop WITH (FORCE)")
    printed = [one.stdout.splitlines() for one in done]

    assert [(one.returncode, one.stderr) for one in done] == [(0, ""), (0, "")]
    assert printed[0][-8:] == printed[1][-8:]
    assert printed[0][-1] == "2 charges: 12.5000 + 0.3000 = 12.8000"
    assert "in Python:  {'status': 201, 'body': {'status': 'created'}}" in printed[0]
    assert "another charge with the same receipt: uq_charge_receipt" in printed[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("E24")
@pytest.mark.fault("functions-stale-snapshot")
def test_the_page_for_database_teams_runs_and_names_the_two_routes_that_are_taken(url: str) -> None:
    """
    Its blocks of SQL run as they stand, twice over, with one charge; and both routes are in the very words of the
    statements that run: the constraint with its violation handled, and the lock with a comparison.
    """
    page = (PAGES / "keep-the-contract-in-postgresql.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    rows(url, "DROP TABLE IF EXISTS charge CASCADE")
    found = [rows(url, block) for _ in range(2) for block in blocks]
    [(source,)] = rows(url, "SELECT prosrc FROM pg_proc WHERE proname = 'onceward_claim'")
    said, done = (" ".join(text.split()) for text in (page, source))

    assert rows(url, "SELECT count(*), sum(amount)::text FROM charge") == [(1, "12.5000")]
    assert [row[1:4] for row in found[-1]] == [("live:charge:order-17", "settled", 1)]
    assert "`INSERT ... ON CONFLICT (id) DO NOTHING`, decided by `onceward_records_pkey`" in said
    assert "ON CONFLICT (id) DO NOTHING" in done
    assert "`UPDATE ... WHERE version = ...` locks the row and compares" in said
    assert "WHERE kept.id = its_id AND kept.version = standing.version" in done
    assert "MERGE" not in done
