"""
Each INSERT is a safe skip (A), a duplicate factory (B) or an overwriting upsert (C): by what, and what a retry does.

Judged by the constraints that the schema has. Without a schema the clause is all there is, and the judgement says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.coverage import Coverage, Meets, coverage_of, holds_for_some
from onceward.lint.sql.key_names import KeyNames
from onceward.lint.sql.schema import SchemaTable, SqlSchema, describe
from onceward.lint.sql.statements import Conflict, Insert, Unique

Hazard: TypeAlias = tuple[str, str]
"""A code and a message."""

NO_SCHEMA = "no schema"


class InsertClass(Enum):
    """What an INSERT is, on a retry."""

    SAFE_SKIP = "A"
    DUPLICATE_FACTORY = "B"
    OVERWRITING_UPSERT = "C"

    @property
    def words(self) -> str:
        """As people say it: "safe skip"."""
        return self.name.lower().replace("_", " ")


@dataclass
class Judgement:
    """What became of looking at one INSERT."""

    insert: Insert
    kind: InsertClass
    failure: str
    """What a retry does."""
    constraint: str = ""
    """The constraint that decides, with its columns; empty if there is none, or none is known."""
    clause: str = ""
    """The conflict clause."""
    is_known: bool = True
    """Whether the table was in the schema."""
    hazards: list[Hazard] = field(default_factory=list)
    refused: bool = False
    """Whether a retry ends with an error, by a constraint and without a clause."""


@dataclass(frozen=True)
class Judge:
    """Judges INSERTs against a schema."""

    schema: SqlSchema
    names: KeyNames
    no_double_send: bool = False

    def judge(self, insert: Insert, *, handled: bool = False) -> Judgement:
        """What a retry of this INSERT does. `handled`: a violation is caught by the routine around it."""
        table = self.schema.table_ever(insert.table)
        known = table if table is not None and self._says_enough(table, insert) else None
        if insert.conflict is None:
            judged = self._plain(insert, known, handled=handled)
        else:
            judged = self._with_clause(insert, insert.conflict, known)
            judged.clause = clause_text(insert.conflict)
            self._look_at_clause(judged, insert.conflict)
        judged.is_known = known is not None
        if known is None and "no schema" not in judged.failure:
            what = f"{insert.table} is a view" if table is not None and table.kind == "view" else NO_SCHEMA
            judged.failure = f"{what}: {judged.failure}"
        if known is not None and known.kind == "temporary":
            judged.hazards = []
        return judged

    def _says_enough(self, table: SchemaTable, insert: Insert) -> bool:
        """
        Whether the judgement can be made by what is known of a table.

        Of one that was only altered, no more is known than that: a constraint that was seen is there, but others may
        be, too, so nothing follows from one that was not seen.
        """
        if table.kind != "unknown":
            return table.kind != "view"
        clause = insert.conflict
        if clause is not None and (clause.target or clause.constraint):
            return any(_matches(one, clause) for one in table.uniques)
        return any(one.bites and not holds_for_some(one.unique) for one in self._coverages(insert, table))

    def _coverages(self, insert: Insert, table: SchemaTable) -> list[Coverage]:
        return [coverage_of(one, insert, table) for one in table.uniques]

    def _plain(self, insert: Insert, table: SchemaTable | None, *, handled: bool) -> Judgement:
        """No clause: the constraint alone decides, and its error is somebody's to read."""
        if table is None:
            if handled:
                return Judgement(
                    insert, InsertClass.SAFE_SKIP, "if there is a constraint, it refuses a retry, and that is handled"
                )
            failure = "nothing here skips a second row, so a retry writes one unless a constraint refuses it"
            return Judgement(
                insert, InsertClass.DUPLICATE_FACTORY, failure, hazards=[("OW201", _factory(failure, insert))]
            )
        covering = self._coverages(insert, table)
        biting = [one for one in covering if one.bites and not holds_for_some(one.unique)]
        if not biting:
            return self._unprotected(insert, table, covering)
        best = self._best(biting)
        judged = Judgement(insert, InsertClass.DUPLICATE_FACTORY, "", describe(best.unique))
        if best.unique.resolution == "replace":
            judged.kind = InsertClass.OVERWRITING_UPSERT
            judged.failure = (
                "a retry deletes the first row and writes its own, because the constraint says ON CONFLICT REPLACE"
            )
            judged.hazards.append(("OW208", f"{judged.constraint} replaces: {judged.failure}"))
        elif handled or best.unique.resolution == "ignore":
            judged.kind = InsertClass.SAFE_SKIP
            judged.failure = "a retry is refused by the constraint" + (
                ", and the routine handles that" if handled else ""
            )
        else:
            judged.refused = True
            judged.failure = (
                "a retry tries to write a second row, and the constraint refuses it with an error for the caller"
            )
            if self.names.keys_of(best.unique.columns):
                message = (
                    f"a retry of this INSERT is refused by {judged.constraint} with an error. "
                    f"{_advice(best.unique, self.schema.dialect)}, or let the caller treat that error as done"
                )
                judged.hazards.append(("OW202", message))
        if best.meets is Meets.MAYBE_NULL:
            self._say_nullable(judged, best)
        return judged

    def _unprotected(self, insert: Insert, table: SchemaTable, covering: list[Coverage]) -> Judgement:
        """A known table, and no constraint that a retry meets: say why not."""
        keyed = [one for one in covering if self.names.keys_of(one.unique.columns)] or covering
        partial = [one for one in keyed if one.bites and holds_for_some(one.unique)]
        fresh = [one for one in keyed if one.meets is Meets.FRESH and self.names.keys_of(one.unique.columns)]
        null = [one for one in keyed if one.meets is Meets.NULL and self.names.keys_of(one.unique.columns)]
        judged = Judgement(insert, InsertClass.DUPLICATE_FACTORY, "")
        if partial:
            judged.constraint = describe(partial[0].unique)
            judged.failure = (
                f"a retry writes a second row once {_some(partial[0].unique)} no longer holds for the first row"
            )
            judged.hazards.append(("OW215", f"{judged.constraint} is partial: {judged.failure}"))
        elif fresh:
            judged.constraint = describe(fresh[0].unique)
            self._say_fresh(judged, fresh[0])
        elif null:
            judged.constraint = describe(null[0].unique)
            self._say_null(judged, null[0])
        else:
            unmet = "" if covering else f": {table.name} has no unique constraint"
            reason = next((f": {one.column} is generated by {one.by}" for one in covering if one.by), unmet)
            judged.failure = f"a retry writes a second row, and no constraint stops it{reason}"
            judged.hazards.append(("OW201", _factory(judged.failure, insert)))
        return judged

    def _with_clause(self, insert: Insert, clause: Conflict, table: SchemaTable | None) -> Judgement:
        upserts = clause.action in ("update", "replace") and not clause.changes_nothing
        kind = InsertClass.OVERWRITING_UPSERT if upserts else InsertClass.SAFE_SKIP
        does = _second_row(clause)
        judged = Judgement(insert, kind, f"a retry {does}")
        if table is None:
            judged.failure = f"if there is such a constraint, a retry {does}"
            if not clause.target and not clause.constraint and clause.action == "nothing":
                judged.hazards.append(("OW203", _swallows("rows that any constraint refuses")))
            elif clause.action == "ignore":
                judged.hazards.append(("OW203", _swallows("also rows that break NOT NULL or CHECK")))
            return judged
        covering = self._coverages(insert, table)
        if clause.target or clause.constraint:
            matching = [one for one in covering if _matches(one.unique, clause)]
            if not matching:
                return self._no_such_constraint(judged, clause, table)
            deciding = self._best(matching)
        else:
            biting = [one for one in covering if one.bites]
            if not biting:
                return self._unprotected(insert, table, covering)
            deciding = self._best(biting)
            self._look_at_others(judged, clause, deciding, biting, table)
        judged.constraint = describe(deciding.unique)
        self._look_at(judged, deciding)
        return judged

    def _best(self, coverages: list[Coverage]) -> Coverage:
        """The constraint that people mean: one with a key, if there is one; otherwise one that surely holds."""

        def order(one: Coverage) -> tuple[bool, bool, bool]:
            return not self.names.keys_of(one.unique.columns), not one.bites, bool(holds_for_some(one.unique))

        return min(coverages, key=order)

    def _look_at(self, judged: Judgement, deciding: Coverage) -> None:
        """Whether the constraint that decides meets the first row."""
        if deciding.meets is Meets.FRESH:
            judged.kind = InsertClass.DUPLICATE_FACTORY
            self._say_fresh(judged, deciding)
        elif deciding.meets is Meets.NULL:
            judged.kind = InsertClass.DUPLICATE_FACTORY
            self._say_null(judged, deciding)
        elif holds_for_some(deciding.unique):
            judged.failure += f", but only while {_some(deciding.unique)} holds for the first row"
            judged.hazards.append(
                (
                    "OW215",
                    f"{judged.constraint} is partial: a retry is stopped only while {_some(deciding.unique)} holds",
                )
            )
        elif deciding.meets is Meets.MAYBE_NULL:
            self._say_nullable(judged, deciding)

    def _say_fresh(self, judged: Judgement, one: Coverage) -> None:
        judged.failure = f"a retry writes a second row: {one.column} is generated by {one.by} on each attempt"
        judged.hazards.append(
            (
                "OW206",
                f"{judged.failure}, so {judged.constraint} never stops it. Let the caller send the same key again",
            )
        )

    def _say_null(self, judged: Judgement, one: Coverage) -> None:
        judged.failure = f"a retry writes a second row: {one.column} is NULL, and NULLs are distinct"
        judged.hazards.append(
            (
                "OW205",
                f"{judged.failure}, so {judged.constraint} never stops it. Set {one.column}, and declare it NOT NULL",
            )
        )

    def _say_nullable(self, judged: Judgement, one: Coverage) -> None:
        judged.failure += f"; but not if {one.column} is NULL"
        judged.hazards.append(
            (
                "OW205",
                f"{one.column} may be NULL, and NULLs are distinct: then {judged.constraint} does not stop a retry. "
                f"Declare {one.column} NOT NULL",
            )
        )

    def _no_such_constraint(self, judged: Judgement, clause: Conflict, table: SchemaTable) -> Judgement:
        judged.kind = InsertClass.DUPLICATE_FACTORY
        named = f"ON CONSTRAINT {clause.constraint}" if clause.constraint else f"({', '.join(clause.target)})"
        near = [one for one in table.uniques if not clause.constraint and set(one.columns) == set(clause.target)]
        if near and near[0].deferrable:
            why = f"{describe(near[0])} is deferrable, which ON CONFLICT cannot use"
        elif near:
            why = f"{describe(near[0])} is partial: repeat its WHERE after the target"
        elif table.uniques:
            why = f"{table.name} has {'; '.join(describe(one) for one in table.uniques[:4])}"
        else:
            why = f"{table.name} has no unique constraint"
        judged.failure = f"it fails every time: no constraint matches {named}"
        judged.hazards.append(("OW204", f"no constraint of {table.name} matches ON CONFLICT {named}: {why}"))
        return judged

    def _look_at_others(
        self, judged: Judgement, clause: Conflict, deciding: Coverage, biting: list[Coverage], table: SchemaTable
    ) -> None:
        """A clause without a target skips whatever any constraint refuses."""
        others = [describe(one.unique) for one in biting if one is not deciding]
        if clause.action == "ignore":
            own = set(deciding.unique.columns)
            others += [
                f"NOT NULL of {one.name}"
                for one in table.columns.values()
                if one.not_null and one.default is None and one.name not in own
            ]
        if others and clause.action in ("nothing", "ignore"):
            judged.hazards.append(
                ("OW203", _swallows(f"rows that break {'; '.join(others[:3])}, not only {describe(deciding.unique)}"))
            )

    def _look_at_clause(self, judged: Judgement, clause: Conflict) -> None:
        """What the clause itself does, whatever the constraint."""
        if clause.adding:
            columns = ", ".join(clause.adding)
            judged.hazards.append(
                (
                    "OW209",
                    f"the upsert adds to {columns}: each retry adds again. Set it from EXCLUDED, or use DO NOTHING",
                )
            )
        if clause.action == "replace":
            judged.hazards.append(
                (
                    "OW208",
                    "REPLACE deletes the first row (and its referring rows) and writes another. Use ON CONFLICT (...)",
                )
            )
        if self.no_double_send and clause.action in ("update", "replace"):
            judged.hazards.append(
                (
                    "OW207",
                    f"the intent is no-double-send, and a retry {_second_row(clause)}, so the sender cannot tell it "
                    "from the first attempt. Use DO NOTHING",
                )
            )


def clause_text(clause: Conflict) -> str:
    """A conflict clause in its shortest form."""
    if clause.action in ("ignore", "replace"):
        return f"OR {clause.action.upper()}"
    target = f" ON CONSTRAINT {clause.constraint}" if clause.constraint else ""
    target = f" ({', '.join(clause.target)})" if clause.target else target
    where = f" WHERE {' AND '.join(clause.predicate)}" if clause.predicate else ""
    does = "DO NOTHING" if clause.action == "nothing" else "DO UPDATE SET " + ", ".join(clause.updates)
    return f"ON CONFLICT{target}{where} {does}"


def _matches(unique: Unique, clause: Conflict) -> bool:
    """Whether the database would take this constraint for that clause."""
    if clause.constraint:
        return unique.name == clause.constraint and not unique.deferrable
    return (
        set(unique.columns) == set(clause.target)
        and set(unique.predicate) <= set(clause.predicate)
        and not unique.deferrable
        and not unique.excludes
    )


def _second_row(clause: Conflict) -> str:
    if clause.action == "replace":
        return "deletes the first row and writes its own"
    if clause.action == "update":
        if clause.changes_nothing:
            return "changes nothing and returns the first row"
        return f"overwrites {', '.join(clause.updates)} in the first row"
    return "is skipped"


def _some(unique: Unique) -> str:
    return " AND ".join(holds_for_some(unique))


def _factory(failure: str, insert: Insert) -> str:
    return f"{insert.table}: {failure}. Add a key under a UNIQUE constraint, and skip the rows that it refuses"


def _swallows(what: str) -> str:
    return f"without a target, it skips {what}: a row may be lost unnoticed. Name the key: ON CONFLICT (...)"


def _advice(unique: Unique, dialect: Dialect) -> str:
    if dialect is Dialect.TSQL:
        return "Catch error 2627 of this constraint"
    return f"Write ON CONFLICT ({', '.join(unique.columns)}) DO NOTHING"
