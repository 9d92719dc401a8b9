"""
Rows that an earlier version wrote are read by this one, and a file that was restored does not repeat its fences.

The golden rows are those of `written()`, taken from files of schema 1 and of schema 2, which names the holder. They are
stored by users for years: what is in a golden file is never changed, only added to; a version that writes other rows
has to go on reading these. Those of schema 1 are put into a file of schema 1, which this version then brings forward.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import Expired, Found, Gate, InDoubt, InFlight, KeyReused, NotReplayable
from onceward._core.holders import Process
from onceward._core.holders import encode_process as written_process
from onceward._core.record import Record
from onceward.errors import NothingHappened, RecordedFailure, SchemaMismatch
from onceward.stores import _sqlite_schema as schema
from onceward.stores.sqlite import SqliteStore
from onceward.testing.clock import START_US, StillEnvironment
from onceward.testing.store_suite.rows import reclaimed, row, settled

GOLDEN = Path(__file__).resolve().parents[2] / "core" / "golden" / "rows"
LATEST = 2
"""The schema whose golden rows this version writes."""
HOLDER = written_process(Process("golden", b"machine!", b"the boot", b"the pids", 4711, 123_456, 1_000_000_000))
READ_AT_US = START_US + 10_000_000
"""Ten seconds after the first golden row was written: the claim still holds, and the brief answer has expired."""
SCOPE = "live:acme"
REQUEST = {"amount": "12.50", "to": "Zoë"}
ASKED: dict[str, Any] = {"request": REQUEST, "name": "charge"}
ANSWER = {"id": "ch_1", "lines": [1, 2.5, None, True, "ä→日本"]}
STATES = {
    "claimed": "claimed",
    "settled json": "settled",
    "settled bytes": "settled",
    "settled not replayable": "settled",
    "settled failure": "settled",
    "settled step": "settled",
    "released": "released",
    "in doubt": "in_doubt",
    "tombstone": "expired",
}


class CardDeclined(Exception):
    """A failure with a code."""

    code = "card_declined"


def key_of(name: str) -> str:
    """The key of a golden row: its name, as a key may be spelled."""
    return f"golden:{name.replace(' ', '-')}"


def rows_in(path: Path) -> dict[str, dict[str, Any]]:
    """Every row of a file as JSON can hold it, by key; bytes are {"hex": ...}."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM onceward_records ORDER BY key").fetchall()
    return {
        one["key"]: {
            column: {"hex": one[column].hex()} if isinstance(one[column], bytes) else one[column]
            for column in one.keys()  # noqa: SIM118 - a Row is not a mapping: iterating it gives values
        }
        for one in found
    }


def _raising(error: Exception) -> Callable[[], Any]:
    def raises() -> Any:
        raise error

    return raises


class Golden(StillEnvironment):
    """A still clock, in a process that is the same every time."""

    def process(self) -> bytes:
        """The holder in the golden rows."""
        return HOLDER


def written(path: Path) -> dict[str, dict[str, Any]]:
    """The rows that this version writes, one for each state, by name."""
    still = Golden(seed="golden")
    claimed: dict[str, Any] = {}
    with Gate(SqliteStore(path, environment=still), scope=SCOPE, environment=still) as gate:
        gate.run(key_of("tombstone"), lambda: "gone", retain=1, **ASKED)
        gate.run(key_of("settled json"), lambda: ANSWER, **ASKED)
        gate.run(key_of("settled bytes"), lambda: bytes(range(256)), **ASKED)
        gate.run(key_of("settled not replayable"), object, **ASKED)
        gate.plan("golden").step(key_of("settled step"), lambda: 7, **ASKED)
        for name, error, options in (
            ("settled failure", CardDeclined("no funds"), {"remember": "all"}),
            ("released", NothingHappened("refused at the door"), {}),
            ("in doubt", TimeoutError("no answer from the bank"), {}),
        ):
            with pytest.raises(type(error)):
                gate.run(key_of(name), _raising(error), **ASKED, **options)
        still.advance(2)
        gate.purge()
        gate.run(key_of("claimed"), lambda: claimed.update(rows_in(path)), **ASKED)
    rows = rows_in(path)
    return {name: _row_of(name, claimed if name == "claimed" else rows) for name in STATES}


def _row_of(name: str, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A stored key carries the scope's environment, and a step's its plan, in front."""
    return next(one for key, one in rows.items() if key.endswith(key_of(name)))


def golden(version: int = 1) -> dict[str, dict[str, Any]]:
    """The golden rows of a schema, by name."""
    text = (GOLDEN / f"sqlite_schema_{version}.json").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = json.loads(text)
    return rows


def _value(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def insert(path: Path, one: dict[str, Any]) -> None:
    """Put a golden row into a file with plain SQL, past every rule of ours."""
    columns, places = ", ".join(one), ", ".join("?" * len(one))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"INSERT INTO onceward_records ({columns}) VALUES ({places})", [*map(_value, one.values())])


@pytest.fixture
def still() -> StillEnvironment:
    """The time at which the golden rows are read."""
    return StillEnvironment(wall_us=READ_AT_US, seed="reader")


@pytest.fixture
def store(tmp_path: Path, still: StillEnvironment) -> Iterator[SqliteStore]:
    """A store on a file of schema 1 that holds the golden rows: it is brought forward when it is opened."""
    store = SqliteStore(file_of(1, tmp_path), environment=still)
    yield store
    store.close()


def file_of(version: int, folder: Path) -> Path:
    """A file as a version of that schema has left it, with its golden rows."""
    path = folder / f"golden_{version}.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, statements in schema.migrations(0):
            if number <= version:
                for statement in statements:
                    connection.execute(statement)
        connection.execute("UPDATE onceward_meta SET value = ? WHERE name = 'schema_version'", (version,))
    for one in golden(version).values():
        insert(path, one)
    return path


@pytest.fixture
def gate(store: SqliteStore, still: StillEnvironment) -> Gate:
    """A gate over it, as the next version would open one."""
    return Gate(store, scope=SCOPE, environment=still, in_flight="refuse")


class Untouched:
    """A function that must not run."""

    def __call__(self) -> Any:
        raise AssertionError("it ran again")


def asks(gate: Gate, name: str, fn: Callable[[], Any] | None = None, **options: Any) -> Any:
    """A retry of the operation that a golden row is of."""
    return gate.call(key_of(name), fn or Untouched(), **(ASKED | options))


class TestReading:
    """What stands in the rows is what is understood."""

    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize("name", STATES)
    def test_every_column_is_read_as_it_stands(
        self, tmp_path: Path, still: StillEnvironment, version: int, name: str
    ) -> None:
        """
        Each field has its column's value; instants of ends are read as what is left until then. Schema 1 names nobody.
        """
        one = {"holder": None} | {column: _value(value) for column, value in golden(version)[name].items()}
        store = SqliteStore(file_of(version, tmp_path), environment=still)
        found = store.load(one["id"])
        store.close()
        spans = {"lease_left": "lease_until", "replay_left": "replay_until", "forget_left": "forget_at"}
        expected = {field: one[field] for field in Record._fields if field in one} | {
            "age": READ_AT_US - one["first_at"],
            **{field: None if one[end] is None else one[end] - READ_AT_US for field, end in spans.items()},
        }

        assert found is not None
        assert found._asdict() == expected

    def test_every_row_is_shown_in_the_words_of_the_glossary(self, store: SqliteStore, gate: Gate) -> None:
        """
        Each in its state; the step of a plan is a record of another kind, and listed with them.
        """
        shown = {one.key: one.state for one in gate.records.list()}

        assert {golden()[name]["key"]: state for name, state in STATES.items()} == shown
        assert [golden()["in doubt"]["key"]] == [one.key for one in gate.records.in_doubt()]

    @pytest.mark.parametrize("name", STATES)
    def test_this_version_writes_what_the_golden_rows_show(self, tmp_path: Path, name: str) -> None:
        """
        All but what is chance: if this fails on purpose, keep the old golden rows and add the new ones beside them.
        """
        chance = {"version", "token", "holder"}
        now, then = written(tmp_path / "written.db")[name], golden(LATEST)[name]

        assert {column: value for column, value in then.items() if column not in chance} == {
            column: value for column, value in now.items() if column not in chance
        }
        assert holder_in(then) == holder_in(now)
        assert ({"claimed", "in doubt"} >= {name}) == (holder_in(now) is not None)


def holder_in(one: dict[str, Any]) -> str | None:
    """The holder in a row, without the beginning of the claim's token, which is chance."""
    stored = one["holder"]
    return None if stored is None else stored["hex"][:4] + stored["hex"][20:]


class TestAsking:
    """A retry of each is answered as if this version had written the row."""

    @pytest.mark.parametrize(("name", "value"), [("settled json", ANSWER), ("settled bytes", bytes(range(256)))])
    def test_a_stored_answer_is_replayed(self, gate: Gate, name: str, value: Any) -> None:
        """
        The value, from the first attempt, and nothing runs.
        """
        outcome = asks(gate, name)

        assert (value, True, 1) == (outcome.value, outcome.replayed, outcome.attempt)

    def test_a_step_of_a_plan_is_replayed(self, gate: Gate) -> None:
        """
        Under the plan that it belongs to.
        """
        assert gate.plan("golden").step(key_of("settled step"), Untouched(), **ASKED) == 7

    @pytest.mark.parametrize(
        ("name", "refusal"),
        [
            ("claimed", InFlight),
            ("settled not replayable", NotReplayable),
            ("in doubt", InDoubt),
            ("tombstone", Expired),
        ],
    )
    def test_what_has_no_answer_is_refused_for_its_own_reason(
        self, gate: Gate, name: str, refusal: type[Exception]
    ) -> None:
        """
        Running, not kept, in doubt or expired: each says so, and nothing runs.
        """
        with pytest.raises(refusal):
            asks(gate, name)

    def test_a_recorded_failure_is_raised_as_data(self, gate: Gate) -> None:
        """
        With its message and code.
        """
        with pytest.raises(RecordedFailure) as raised:
            asks(gate, "settled failure")

        assert (raised.value.message, raised.value.failure_code) == ("no funds", "card_declined")

    @pytest.mark.parametrize("name", sorted(STATES.keys() - {"settled step"}))
    def test_another_request_under_its_key_is_refused(self, gate: Gate, name: str) -> None:
        """
        The fingerprint is understood, too.
        """
        with pytest.raises(KeyReused):
            asks(gate, name, request={"amount": "99.00"})

    def test_what_was_released_runs_as_the_next_attempt(self, gate: Gate) -> None:
        """
        With a greater fence than the one before.
        """
        outcome = asks(gate, "released", lambda: "now")

        assert (outcome.value, outcome.replayed, outcome.attempt) == ("now", False, 2)
        assert outcome.fence > golden()["released"]["fence"]

    def test_what_is_in_doubt_can_be_decided(self, gate: Gate) -> None:
        """
        Decided as having happened, its answer is replayed from then on.
        """
        gate.reconcile(key_of("in doubt"), Found("ch_9"), fence=golden()["in doubt"]["fence"])

        assert asks(gate, "in doubt").value == "ch_9"

    def test_a_claim_whose_holder_is_gone_is_in_doubt_when_its_lease_has_run_out(
        self, gate: Gate, still: StillEnvironment
    ) -> None:
        """
        Its guarantee is read from the row: blind.
        """
        still.advance(60)

        with pytest.raises(InDoubt):
            asks(gate, "claimed")

    def test_a_state_of_a_later_version_is_not_half_understood(self, tmp_path: Path, still: StillEnvironment) -> None:
        """
        A row in a state that this version does not know is refused, and not run over.
        """
        path = tmp_path / "later.db"
        with Gate(SqliteStore(path, environment=still), scope=SCOPE, environment=still) as gate:
            gate.records.list()
            insert(path, golden()["settled json"] | {"state": "archived"})

            with pytest.raises(SchemaMismatch):
                asks(gate, "settled json")


class TestRestoring:
    """A file that was put back as it was."""

    @pytest.mark.parametrize("passed_us", [1, 3_600_000_000])
    def test_no_fence_is_given_again(self, tmp_path: Path, passed_us: int) -> None:
        """
        Claims after a restore have greater fences than any given before it, also those the copy knows nothing of.
        """
        still, live, copy = StillEnvironment(), tmp_path / "live.db", tmp_path / "copy.db"
        store = SqliteStore(live, environment=still)
        before = [store.put(row(SCOPE, "old"), None).record]
        with closing(sqlite3.connect(live)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        for number in range(5):
            still.advance(1)
            before.append(store.put(row(SCOPE, f"new:{number}"), None).record)
            before.append(store.put(reclaimed(store.load(before[0].id)), store.load(before[0].id).version).record)
        gone = store.put(settled(before[-2], replay=0, forget=0), before[-2].version)
        purged = store.purge(10)
        store.close()

        still.advance(passed_us / 1e6)
        restored = SqliteStore(copy, environment=still)
        old = restored.load(before[0].id)
        after = [
            restored.put(reclaimed(old), old.version),
            *(restored.put(row(SCOPE, f"new:{number}"), None) for number in range(5)),
        ]
        restored.close()

        assert (gone.landed, purged.forgotten) == (True, 1)
        assert [one.landed for one in after] == [True] * 6
        assert max(one.fence for one in before) < min(one.record.fence for one in after)
