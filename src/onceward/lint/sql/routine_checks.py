"""
Routines: what is checked before it is written, whose errors are taken for the key's, and where transactions end.

Also says what is right, because the fifth document's procedure is nearly right, and a reader should know what to keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onceward.lint.sql.coverage import coverage_of, supplied_values
from onceward.lint.sql.insert_judge import InsertClass, Judge, Judgement
from onceward.lint.sql.schema import Schema, describe
from onceward.lint.sql.statements import (
    FoundCheck,
    Handler,
    Insert,
    Lock,
    Merge,
    Read,
    Routine,
    Statement,
    Step,
    Transaction,
    Update,
)


@dataclass
class RoutineReport:
    """What was seen in one routine."""

    judgements: list[Judgement] = field(default_factory=list)
    hazards: list[tuple[str, int, int, str]] = field(default_factory=list)
    """Code, place, end, message: besides those of the judgements."""
    right: list[tuple[int, str]] = field(default_factory=list)
    """What is done as it should be: place and sentence."""


def check_routine(routine: Routine, judge: Judge) -> RoutineReport:
    """Look at a routine."""
    report = RoutineReport()
    segments = _segments(routine)
    numbers: list[int] = []
    for number, step in enumerate(routine.steps):
        statement = step.statement
        if isinstance(statement, Insert):
            handled = step.handler >= 0 and routine.handlers[step.handler].catches_unique
            judged = judge.judge(statement, handled=handled)
            _check_then_insert(routine, number, judged)
            report.judgements.append(judged)
            numbers.append(number)
        elif isinstance(statement, Merge):
            report.hazards += merge_hazards(statement)
    _share_protection(routine, segments, list(zip(numbers, report.judgements, strict=True)), judge)
    _look_at_handlers(routine, judge, report)
    _look_at_transactions(routine, segments, judge, report)
    for column in routine.parameters:
        if column.width and judge.names.is_key(column.name):
            report.hazards.append(
                ("OW213", column.at, column.at + 1 + len(column.name), fixed_width("@" + column.name, column.width))
            )
    return report


def _share_protection(routine: Routine, segments: list[int], judged: list[tuple[int, Judgement]], judge: Judge) -> None:
    """
    What is written in one transaction with a key stands and falls with it: if the key is refused, both are rolled back.

    That is so if the refusal is an error. If a clause skips the key, somebody must ask whether it was skipped.
    """
    keys = [(number, one) for number, one in judged if _has_key(one.insert, judge) and one.constraint]
    for number, one in judged:
        for key_number, key in keys:
            if one is key or segments[number] != segments[key_number] or _codes(key) & {"OW205", "OW206", "OW215"}:
                continue
            between = routine.steps[key_number:number]
            asked = any(isinstance(step.statement, FoundCheck) for step in between)
            if (key.insert.conflict is None or asked) and _codes(one) <= {"OW201", "OW211"} and one.kind.value != "C":
                one.kind, one.hazards = InsertClass.SAFE_SKIP, []
                one.failure = f"it stands and falls with the key in {key.insert.table}, in the same transaction"
                one.constraint = key.constraint


def _codes(judged: Judgement) -> set[str]:
    return {code for code, _ in judged.hazards}


def fixed_width(name: str, width: int) -> str:
    """What is wrong with a key of a fixed width."""
    return (
        f"{name} is char({width}): a shorter key is padded with blanks and a longer one is cut or refused, so two keys "
        "may become one. Use a text as long as keys may be, and refuse longer ones"
    )


def merge_hazards(merge: Merge) -> Iterator[tuple[str, int, int, str]]:
    """A MERGE that inserts looks first and writes then: two of them both find nothing."""
    if merge.inserts:
        yield (
            "OW210",
            merge.at,
            merge.end,
            f"MERGE INTO {merge.table} matches and inserts in two steps, so two callers may both insert, or one fails. "
            "Insert, and let the unique constraint decide",
        )


def check_alone(judged: Judgement) -> None:
    """A single INSERT that looks for the row first: `INSERT ... SELECT ... WHERE NOT EXISTS`."""
    insert = judged.insert
    if insert.conflict is None and _same_table(insert.table, insert.checks) and not judged.refused:
        _say_check_then_insert(judged, "looks for the row and then writes it")


def _check_then_insert(routine: Routine, number: int, judged: Judgement) -> None:
    """What a routine read before it inserts decides nothing: another may have read the same."""
    insert = judged.insert
    before = routine.steps[:number]
    looked = next((one for one in before if _looks_for(one, insert, before)), None)
    if looked is None:
        check_alone(judged)
        return
    if judged.refused:  # The look is a fast path, and the constraint is the judge.
        judged.hazards = [one for one in judged.hazards if one[0] != "OW202"]
    elif insert.conflict is None and judged.kind.value == "B":
        locks = any(isinstance(one.statement, Lock) for one in before)
        if not locks and not (isinstance(looked.statement, Read) and looked.statement.locks):
            _say_check_then_insert(judged, f"is written after a look at {insert.table}")
        elif not judged.is_known or (judged.hazards[:1] and judged.hazards[0][0] == "OW201"):
            judged.hazards = []  # Locks that everybody takes are the other acceptable way.


def _looks_for(step: Step, insert: Insert, before: tuple[Step, ...]) -> bool:
    statement = step.statement
    if isinstance(statement, Read):
        return _same_table(insert.table, statement.tables)
    if isinstance(statement, Update) and _same_table(insert.table, (statement.table,)):
        return any(isinstance(one.statement, FoundCheck) for one in before)
    return False


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
    return any(one.rpartition(".")[2] == name.rpartition(".")[2] for one in others)


def _look_at_handlers(routine: Routine, judge: Judge, report: RoutineReport) -> None:
    for number, handler in enumerate(routine.handlers):
        inserts = [
            one.statement for one in routine.steps if one.handler == number and isinstance(one.statement, Insert)
        ]
        inserts = [one for one in inserts if one.conflict is None]
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
                            f"the constraint is the judge: {describe(biting[0])} decides, and the loser is handled",
                        )
                    )
        if not handler.looks_at_name and (len(may_refuse) > 1 or (handler.catches_all and not handler.raises)):
            report.hazards.append(("OW212", handler.at, handler.end, _any_violation(handler, may_refuse)))


def _any_violation(handler: Handler, may_refuse: list[str]) -> str:
    if handler.catches_all and not handler.raises:
        return (
            "every error is taken for a duplicate key. Handle that one alone, by the constraint's name; raise the rest"
        )
    others = "; ".join(may_refuse[:4])
    return (
        f"any unique violation is taken for the key's, but it may be of another constraint ({others}). "
        "Look at the constraint's name, and raise the rest"
    )


def _what_may_refuse(inserts: list[Insert], schema: Schema) -> list[str]:
    """Every constraint that an INSERT in the block may break; a table that is not known may have some."""
    found: dict[str, None] = {}
    for insert in inserts:
        table = schema.table(insert.table)
        if table is None or table.kind in ("unknown", "view"):
            found[f"those of {insert.table}, which are not known"] = None
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
        if isinstance(step.statement, Insert | Update | Merge)
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
                    f"the key ({key.table}) and the effect ({apart[0].table}) are in different transactions: after a "
                    "crash between them one is there without the other. Put both between one BEGIN and COMMIT",
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
        steps = tuple(Step(one) for one in statements)
        yield Routine(statements[0].at, statements[0].end, "", steps, autocommits=True)
