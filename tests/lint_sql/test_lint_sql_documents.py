"""
The samples of the documents, as they are written there: A, B and C, the migration and the procedure.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_sql_support import HERE, look, migrate

from onceward._core.sql_lexer import Dialect

SAMPLES = (HERE / "documents" / "samples.sql").read_text()
MIGRATION = (HERE / "documents" / "migration.sql").read_text()
CHARGE = (HERE / "documents" / "charge_create.sql").read_text()
EXPENSES = "CREATE TABLE expenses (id bigserial PRIMARY KEY, user_id bigint, amount numeric);\n"
TARGET = ("worker_id", "idempotency_key")


class TestSamples:
    """For each one, tell whether it is idempotent on retry; name the constraint and the clause, or the failure mode."""

    @pytest.mark.requirement("B42")
    @pytest.mark.fault("lint-sql-trusts-names")
    def test_they_are_a_safe_skip_a_duplicate_factory_and_an_overwriting_upsert(self) -> None:
        """
        "A is the safe DO NOTHING. B is a duplicate-row factory. C is the upsert; safe on retry, but it overwrites the
        existing amount."
        """
        a, b, c = look(SAMPLES, schema=EXPENSES + MIGRATION).judged

        constraint = "expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)"
        assert [one.kind.words for one in (a, b, c)] == ["safe skip", "duplicate factory", "overwriting upsert"]
        assert [one.constraint for one in (a, b, c)] == [constraint] * 3
        assert a.clause == "ON CONFLICT (worker_id, idempotency_key) DO NOTHING"
        assert a.insert.conflict is not None
        assert a.insert.conflict.target == TARGET
        assert a.failure == "a retry is skipped"
        assert b.clause == ""
        assert "refuses it with an error" in b.failure
        assert c.clause == "ON CONFLICT (worker_id, idempotency_key) DO UPDATE SET amount"
        assert c.failure == "a retry overwrites amount in the first row"

    @pytest.mark.requirement("B42")
    def test_without_the_constraint_b_writes_a_second_row_and_a_and_c_fail(self) -> None:
        """
        The migration added the columns and not the constraint: decoration, not protection.
        """
        decoration = MIGRATION[: MIGRATION.index("ALTER TABLE expenses\nADD CONSTRAINT")]

        looked = look(SAMPLES, schema=EXPENSES + decoration)

        assert looked.classes == "BBB"
        assert looked.codes == ["OW204", "OW201", "OW204"]
        assert "a retry writes a second row" in looked.judged[1].failure
        assert "it fails every time" in looked.judged[0].failure

    def test_without_a_schema_they_are_classified_by_their_clauses_and_it_says_so(self) -> None:
        """
        Names are not trusted: each says "no schema".
        """
        looked = look(SAMPLES)

        assert looked.classes == "ABC"
        assert all(one.failure.startswith("no schema: ") and one.constraint == "" for one in looked.judged)
        assert looked.codes == ["OW201"]

    @pytest.mark.requirement("B33")
    @pytest.mark.fault("lint-sql-intent-is-nothing")
    def test_do_update_is_refused_where_the_brief_forbids_a_double_send(self) -> None:
        """
        "If the agent uses DO UPDATE when the brief said no double-send, you reject."
        """
        findings = look(SAMPLES, schema=EXPENSES + MIGRATION, intent=True).findings

        assert [(one.code, one.line) for one in findings] == [("OW202", 5), ("OW207", 8)]

    def test_without_that_intent_an_upsert_is_no_finding(self) -> None:
        """
        It "may or may not be what you want".
        """
        assert look(SAMPLES, schema=EXPENSES + MIGRATION).codes == ["OW202"]


def _broken(old: str, new: str) -> str:
    assert MIGRATION.count(old) == 1
    return MIGRATION.replace(old, new)


def _moved(part: str, before: str) -> str:
    start = MIGRATION.index(part)
    end = MIGRATION.index(";\n", start) + 2
    rest = MIGRATION[:start] + MIGRATION[end:]
    place = rest.index(before)
    return rest[:place] + MIGRATION[start:end] + "\n" + rest[place:]


UPDATE = "UPDATE expenses"
TIGHTEN = "ALTER TABLE expenses\nALTER COLUMN worker_id"
CONSTRAIN = "ALTER TABLE expenses\nADD CONSTRAINT"


class TestMigration:
    """The second document's migration: five things to read."""

    @pytest.mark.requirement("B26", "B31")
    def test_the_whole_one_is_clean(self, tmp_path: Path) -> None:
        """
        Add, backfill, tighten, constrain: as it is written.
        """
        assert migrate(tmp_path, MIGRATION, before=EXPENSES) == []
        assert migrate(tmp_path, MIGRATION) == []

    def test_over_several_files_it_is_as_clean(self, tmp_path: Path) -> None:
        """
        One step a file: the order of the files is the order of the steps.
        """
        steps = [step + ";\n" for step in MIGRATION.split(";\n") if step.strip()]

        assert migrate(tmp_path, *steps, before=EXPENSES) == []
        assert {one.code for one in migrate(tmp_path, steps[0], steps[3], steps[1], steps[2])} == {"OW222"}

    @pytest.mark.requirement("B32")
    @pytest.mark.fault("lint-sql-index-is-unique")
    def test_without_the_unique_it_is_decoration(self, tmp_path: Path) -> None:
        """
        "Reject and ask for the constraint": it is named.
        """
        without = MIGRATION[: MIGRATION.index(CONSTRAIN)]

        findings = migrate(tmp_path, without + "CREATE INDEX i ON expenses (worker_id, idempotency_key);")

        assert [one.code for one in findings] == ["OW221"]
        assert "protects nothing" in findings[0].message
        assert "CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)" in findings[0].message

    def test_point_one_columns_start_nullable(self, tmp_path: Path) -> None:
        """
        "so the migration can run on an existing table without lying."
        """
        findings = migrate(
            tmp_path, _broken("ADD COLUMN idempotency_key text;", "ADD COLUMN idempotency_key text NOT NULL;")
        )

        assert [one.code for one in findings] == ["OW225"]

    def test_point_two_rows_are_filled_before_they_are_tightened(self, tmp_path: Path) -> None:
        """
        "Existing rows are backfilled with a historical worker label and deterministic keys before SET NOT NULL."
        """
        late = migrate(tmp_path, _moved(TIGHTEN, UPDATE))
        never = migrate(tmp_path, MIGRATION[: MIGRATION.index(UPDATE)] + MIGRATION[MIGRATION.index(TIGHTEN) :])
        digest = "encode(\ndigest('historical-backfill:' || id::text, 'sha256'),\n'hex'\n)"
        by_chance = migrate(tmp_path, _broken(digest, "gen_random_uuid()::text"))

        assert {one.code for one in late} == {"OW225"}
        assert {one.code for one in never} == {"OW225"}
        assert [one.code for one in by_chance] == ["OW226"]

    @pytest.mark.requirement("B26", "B31")
    @pytest.mark.fault("lint-sql-constraint-first")
    def test_point_three_the_constraint_comes_after_every_row_has_a_real_key(self, tmp_path: Path) -> None:
        """
        Before the backfill it is refused, wherever before.
        """
        assert {one.code for one in migrate(tmp_path, _moved(CONSTRAIN, UPDATE))} == {"OW222"}

    @pytest.mark.requirement("B27")
    @pytest.mark.parametrize("default", ["''", "'none'", "''::text"])
    def test_point_three_no_default_that_would_collide(self, default: str, tmp_path: Path) -> None:
        """
        "A default empty string plus a unique constraint would collide on existing rows."
        """
        text = _broken(
            "ADD COLUMN idempotency_key text;", f"ADD COLUMN idempotency_key text NOT NULL DEFAULT {default};"
        )

        findings = migrate(tmp_path, text)

        assert [one.code for one in findings] == ["OW220"]

    @pytest.mark.fault("lint-sql-scope-is-nothing")
    def test_point_four_the_worker_is_in_the_constraint(self, tmp_path: Path) -> None:
        """
        "Two different Workers may produce the same key by coincidence."
        """
        findings = migrate(tmp_path, _broken("UNIQUE (worker_id, idempotency_key)", "UNIQUE (idempotency_key)"))

        assert [one.code for one in findings] == ["OW224"]
        assert "UNIQUE (worker_id, idempotency_key)" in findings[0].message

    @pytest.mark.requirement("B28")
    @pytest.mark.fault("lint-sql-drops-are-fine")
    @pytest.mark.parametrize(
        "drop",
        [
            "DROP TABLE old_expenses;",
            "ALTER TABLE expenses DROP COLUMN reference;",
            "ALTER TABLE expenses DROP CONSTRAINT expenses_reference;",
            "DROP INDEX CONCURRENTLY IF EXISTS expenses_reference;",
            "DROP SCHEMA old CASCADE;",
            "DROP FUNCTION make_key(text);",
            "DROP VIEW totals;",
            "TRUNCATE expenses;",
        ],
    )
    def test_point_five_there_is_no_drop(self, drop: str, tmp_path: Path) -> None:
        """
        "The migration adds, backfills, tightens, and constrains."
        """
        assert [one.code for one in migrate(tmp_path, MIGRATION + drop)] == ["OW223"]
        assert [one.code for one in migrate(tmp_path, drop + "\n" + MIGRATION)] == ["OW223"]

    def test_a_key_that_stays_nullable_is_not_protected(self, tmp_path: Path) -> None:
        """
        Without the third step.
        """
        text = MIGRATION[: MIGRATION.index(TIGHTEN)] + MIGRATION[MIGRATION.index(CONSTRAIN) :]

        assert [one.code for one in migrate(tmp_path, text)] == ["OW205", "OW205"]


class TestProcedure:
    """The fifth document's table and procedure, in its own dialect and on its one line."""

    @pytest.mark.requirement("E22")
    @pytest.mark.fault("lint-sql-any-violation")
    def test_it_names_what_is_right_and_the_two_traps(self) -> None:
        """
        Right: key and effect in one transaction, the constraint as the judge; the opening SELECT is no guard and no
        hazard. Traps: any 2627 is taken for the key's; `char(36)`.
        """
        looked = look(CHARGE, dialect=Dialect.TSQL)

        assert looked.right == [
            "the constraint decides: pk_idempotency_key PRIMARY KEY (idempotency_key); "
            "a caller that it refuses is handled",
            "key and effect are in one transaction: idempotency_key, charge",
        ]
        assert looked.codes == ["OW212", "OW213", "OW213"]
        assert looked.classes == "AA"

    def test_the_traps_are_gone_once_they_are_mended(self) -> None:
        """
        A wide key, and a look at the constraint's name.
        """
        mended = CHARGE.replace("char(36)", "varchar(255)").replace(
            "IN (2627, 2601)", "IN (2627, 2601) AND ERROR_MESSAGE() LIKE '%pk_idempotency_key%'"
        )

        looked = look(mended, dialect=Dialect.TSQL)

        assert looked.codes == []
        assert len(looked.right) >= 1

    def test_without_its_transaction_key_and_effect_fall_apart(self) -> None:
        """
        "If they are separate, there is a window where the work commits and the key does not."
        """
        apart = CHARGE.replace("BEGIN TRANSACTION;", "").replace("COMMIT TRANSACTION;", "")

        assert "OW214" in look(apart, dialect=Dialect.TSQL).codes

    @pytest.mark.requirement("E22")
    def test_without_its_constraint_the_opening_select_would_be_the_guard(self) -> None:
        """
        "two callers both select, both see nothing, both insert."
        """
        start, end = CHARGE.index("BEGIN CATCH"), CHARGE.index("END CATCH;") + len("END CATCH;")
        naive = CHARGE[:start] + CHARGE[end:]
        naive = (
            naive.replace("CONSTRAINT [pk_idempotency_key] PRIMARY KEY", "")
            .replace("BEGIN TRY", "")
            .replace("END TRY", "")
        )

        codes = look(naive, dialect=Dialect.TSQL).codes

        assert "OW211" in codes
        assert "OW221" in codes
