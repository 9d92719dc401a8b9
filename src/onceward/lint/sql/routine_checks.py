"""
Routines: what is checked before it is written, whose errors are taken for the key's, and where transactions end.

Also says what is right, because the fifth document's procedure is nearly right, and a reader should know what to keep.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from onceward.lint.sql.coverage import coverage_of, supplied_values
from onceward.lint.sql.insert_judge import InsertClass, Judge, Judgement
from onceward.lint.sql.schema import SqlSchema, describe
from onceward.lint.sql.statements import (
    FoundCheck,
    Handler,
    Insert,
    Lock,
    Merge,
    Read,
    Routine,
    RoutineStep,
    Statement,
    Transaction,
    UpdateRows,
)

_OF_REPEATED_ROWS: Final = ("OW201", "OW202", "OW205", "OW209")


@dataclass
class RoutineReport:
    """What was seen in one routine."""

    judgements: list[Judgement] = field(default_factory=list)
    hazards: list[tuple[str, int, int, str]] = field(default_factory=list)
    """Code, place, end, message: besides those of the judgements."""
    right: list[tuple[int, str]] = field(default_factory=list)
    """What is done as it should be: place and sentence."""


@dataclass
class _Looked:
    """What a routine has looked at so far: kept as it goes, so that a long script is read once."""

    reads: dict[str, Read] = field(default_factory=dict)
    """By the last part of the table's name, the first SELECT of it."""
    updates: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    """Tables that were updated before somebody asked whether a row was found."""
    locks: bool = False

    def take(self, statement: Statement) -> None:
        """Remember a statement."""
        if isinstance(statement, Read):
            for table in statement.tables:
                self.reads.setdefault(_last(table), statement)
        elif isinstance(statement, UpdateRows):
            self.updates.add(_last(statement.table))
        elif isinstance(statement, FoundCheck):
            self.asked |= self.updates
            self.updates = set()
        elif isinstance(statement, Lock):
            self.locks = True


def check_routine(routine: Routine, judge: Judge) -> RoutineReport:
    """Look at a routine."""
    report, looked = RoutineReport(), _Looked()
    segments = _segments(routine)
    numbers: list[int] = []
    for number, step in enumerate(routine.steps):
        statement = step.statement
        if isinstance(statement, Insert):
            handled = step.handler >= 0 and routine.handlers[step.handler].catches_unique
            judged = judge.judge(statement, handled=handled)
            if routine.is_trigger or routine.claims:
                # It runs as often as the statement that fires it, or once for its key; and goes with it.
                judged.hazards = [one for one in judged.hazards if one[0] not in _OF_REPEATED_ROWS]
                if routine.claims:
                    judged.kind = InsertClass.SAFE_SKIP
                    judged.failure = "it commits or rolls back with the key of onceward_claim, in the same transaction"
            else:
                _check_then_insert(judged, looked)
            report.judgements.append(judged)
            numbers.append(number)
        elif isinstance(statement, Merge):
            report.hazards += merge_hazards(statement)
        looked.take(statement)
    _share_protection(routine, segments, list(zip(numbers, report.judgements, strict=True)), judge)
    _look_at_handlers(routine, judge, report)
    _look_at_transactions(routine, segments, judge, report)
    for column in routine.parameters:
        if column.width and judge.names.is_key(column.name):
            message = fixed_width("@" + column.name, column.width)
            report.hazards.append(("OW213", column.at, column.at + 1 + len(column.name), message))
    return report


def _share_protection(routine: Routine, segments: list[int], judged: list[tuple[int, Judgement]], judge: Judge) -> None:
    """
    What is written in one transaction with a key commits or rolls back with it.

    That is so if the refusal is an error. If a clause skips the key, somebody must ask whether it was skipped.
    """
    asks = [number for number, step in enumerate(routine.steps) if isinstance(step.statement, FoundCheck)]
    raising: dict[int, Judgement] = {}
    skipping: dict[int, tuple[int, Judgement]] = {}
    for number, one in judged:
        if one.constraint and not _codes(one) & {"OW205", "OW206", "OW215"} and _has_key(one.insert, judge):
            if one.insert.conflict is None:
                raising.setdefault(segments[number], one)
            else:
                skipping.setdefault(segments[number], (number, one))
    for number, one in judged:
        key = raising.get(segments[number])
        if key is None and segments[number] in skipping:
            key_number, skipped = skipping[segments[number]]
            key = skipped if bisect_left(asks, key_number) < bisect_left(asks, number) else None
        if key is not None and key is not one and _codes(one) <= {"OW201", "OW211"} and one.kind.value != "C":
            one.kind, one.hazards = InsertClass.SAFE_SKIP, []
            one.failure = f"it commits or rolls back with the key in {key.insert.table}, in the same transaction"
            one.constraint = key.constraint


def _codes(judged: Judgement) -> set[str]:
    return {code for code, _ in judged.hazards}


def fixed_width(name: str, width: int) -> str:
    """What is wrong with a key of a fixed width."""
    return (
        f"{name} is char({width}): a shorter key is padded with blanks and a longer one is cut or refused, so two keys "
        "may become one. Use a text column, and refuse keys that are too long"
    )


def merge_hazards(merge: Merge) -> Iterator[tuple[str, int, int, str]]:
    """A MERGE that inserts looks first and writes then: two of them both find nothing."""
    if merge.inserts:
        yield (
            "OW210",
            merge.at,
            merge.end,
            f"this MERGE matches {merge.table} and inserts in two steps, so two callers may both insert, or one "
            "fails. Insert, and let the unique constraint decide",
        )


def check_alone(judged: Judgement) -> None:
    """A single INSERT that looks for the row first: `INSERT ... SELECT ... WHERE NOT EXISTS`."""
    insert = judged.insert
    if insert.conflict is None and _same_table(insert.table, insert.checks) and not judged.refused:
        _say_check_then_insert(judged, "checks for the row and then writes it")


def _check_then_insert(judged: Judgement, looked: _Looked) -> None:
    """What a routine read before it inserts decides nothing: another may have read the same."""
    insert = judged.insert
    read = looked.reads.get(_last(insert.table))
    if read is None and _last(insert.table) not in looked.asked:
        check_alone(judged)
    elif judged.refused:  # The look is a fast path, and the constraint is the judge.
        judged.hazards = [one for one in judged.hazards if one[0] != "OW202"]
    elif insert.conflict is None and judged.kind is InsertClass.DUPLICATE_FACTORY:
        if not looked.locks and not (read is not None and read.locks):
            _say_check_then_insert(judged, f"comes after a check of {insert.table}")
        else:  # Locks that everybody takes are the other acceptable way.
            judged.hazards = [one for one in judged.hazards if one[0] != "OW201"]


def _say_check_then_insert(judged: Judgement, how: str) -> None:
    judged.failure = f"two callers at once both find nothing and both insert; {judged.failure}"
    judged.hazards = [one for one in judged.hazards if one[0] not in ("OW201", "OW202")]
    judged.hazards.append(
        (
            "OW211",
            f"INSERT INTO {judged.insert.table} {how}: two callers both find nothing, and both insert. "
            "Insert first, and let a unique constraint decide",
        )
    )


def _same_table(name: str, others: tuple[str, ...]) -> bool:
    return any(_last(one) == _last(name) for one in others)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _look_at_handlers(routine: Routine, judge: Judge, report: RoutineReport) -> None:
    guarded: dict[int, list[Insert]] = {}
    for step in routine.steps:
        if isinstance(step.statement, Insert) and step.statement.conflict is None:
            guarded.setdefault(step.handler, []).append(step.statement)
    for number, handler in enumerate(routine.handlers):
        inserts = guarded.get(number, [])
        if not inserts or not handler.catches_unique:
            continue
        may_refuse = _what_may_refuse(inserts, judge.schema)
        keyed = [one for one in inserts if _has_key(one, judge)]
        if keyed and (handler.catches_all or not handler.looks_at_name):
            for insert in keyed[:1]:
                table = judge.schema.table(insert.table)
                biting = [one for one in table.uniques if coverage_of(one, insert, table).bites] if table else []
                if biting:
                    report.right.append(
                        (
                            insert.at,
                            f"the constraint decides: {describe(biting[0])}; a caller that it refuses is handled",
                        )
                    )
        if not handler.looks_at_name and (len(may_refuse) > 1 or (handler.catches_all and not handler.raises)):
            report.hazards.append(("OW212", handler.at, handler.end, _any_violation(handler, may_refuse)))


def _any_violation(handler: Handler, may_refuse: list[str]) -> str:
    if handler.catches_all and not handler.raises:
        return (
            "every error is taken for a duplicate key. Handle only that error, by the constraint's name; raise others"
        )
    others = "; ".join(may_refuse[:4])
    return (
        f"any unique violation is taken for a duplicate key, but other constraints may raise one ({others}). "
        "Check the constraint's name, and raise all other errors"
    )


def _what_may_refuse(inserts: list[Insert], schema: SqlSchema) -> list[str]:
    """Every constraint that an INSERT in the block may break; a table that is not known may have some."""
    found: dict[str, None] = {}
    for insert in inserts:
        table = schema.table(insert.table)
        if table is None or table.kind in ("unknown", "view"):
            found[f"constraints of {insert.table}, which are not known"] = None
            continue
        for unique in table.uniques:
            if coverage_of(unique, insert, table).bites:
                found[describe(unique)] = None
    return list(found)


def _has_key(insert: Insert, judge: Judge) -> bool:
    return bool(judge.names.keys_of(supplied_values(insert, judge.schema.table(insert.table))))


def _segments(routine: Routine) -> list[int]:
    """By step, the number of its transaction."""
    number, inside, found = 0, not routine.autocommits, []
    for step in routine.steps:
        statement = step.statement
        if isinstance(statement, Transaction):
            number += 1
            inside = statement.word == "begin" or not routine.autocommits
        elif not inside:
            number += 1
        found.append(number)
    return found


def _look_at_transactions(routine: Routine, segments: list[int], judge: Judge, report: RoutineReport) -> None:
    """Key and effect belong into one transaction."""
    writes = [
        (segments[number], step.statement)
        for number, step in enumerate(routine.steps)
        if isinstance(step.statement, Insert | UpdateRows | Merge)
    ]
    keys = [(segment, one) for segment, one in writes if isinstance(one, Insert) and _has_key(one, judge)]
    for segment, key in keys[:1]:
        effects = [(other, one) for other, one in writes if not _same_table(one.table, (key.table,))]
        apart = [one for other, one in effects if other != segment]
        together = [one for other, one in effects if other == segment]
        if apart:
            report.hazards.append(
                (
                    "OW214",
                    key.at,
                    key.end,
                    f"the key ({key.table}) and the effect ({apart[0].table}) are in different transactions: a crash "
                    "between them leaves one without the other. Put both between one BEGIN and COMMIT",
                )
            )
        elif together and _is_shown(routine):
            tables = ", ".join(dict.fromkeys(one.table for one in together))
            report.right.append((key.at, f"key and effect are in one transaction: {key.table}, {tables}"))


def _is_shown(routine: Routine) -> bool:
    """Whether the routine itself makes them one: it begins a transaction, or it is a function, which is one."""
    begins = any(isinstance(one.statement, Transaction) and one.statement.word == "begin" for one in routine.steps)
    return begins or not routine.autocommits


def transactions_as_routines(statements: Sequence[Statement]) -> Iterator[Routine]:
    """What stands between BEGIN and COMMIT of a script, and what follows, as if it were a routine."""
    if any(isinstance(one, Transaction) and one.word == "begin" for one in statements):
        steps = tuple(RoutineStep(one) for one in statements)
        yield Routine(statements[0].at, statements[0].end, "", steps, autocommits=True)
