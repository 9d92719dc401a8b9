"""
The disciplines behind the promise: what the database keeps, what the store shows, and whether keys can be described.

"The key recorded in the same transaction as the effect, the constraint trusted as the arbiter, the violation handled
instead of avoided, the retention window agreed with the people who depend on it."
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceward.doctor.box import Box, BoxAnswer, empty, filled, idle, unknown
from onceward.doctor.checklist import count

if TYPE_CHECKING:
    from onceward.doctor.examination import Evidence

PROMISE: Final = "KEY AND EFFECT"
DATABASE: Final = "THE KEY IN THE DATABASE"
RUNNING: Final = "THE LIVE STORE"
QUESTION: Final = "ONE SENTENCE FOR EVERY KEY"


def _unreadable(evidence: Evidence) -> BoxAnswer | None:
    if evidence.sql.is_readable:
        return None
    return unknown(f"{count(evidence.sql.files, 'SQL file')} cannot be read: pip install 'onceward[lint]'")


def _inserts(evidence: Evidence) -> bool:
    """Whether the project writes rows of its own."""
    return bool(evidence.sql.inserts or evidence.code.guards or evidence.code.tables or evidence.code.bare_inserts)


def _same_transaction(evidence: Evidence) -> BoxAnswer:
    apart = evidence.sql.found("OW214")
    if apart:
        return empty("key and effect are in different transactions: put both in one", apart)
    if trouble := _unreadable(evidence):
        return trouble
    together = [place for place, words in evidence.sql.right if "transaction" in words]
    atomic = [*evidence.code.atomic, *(one.place for one in evidence.code.operations if one.is_atomic)]
    if atomic or together:
        return filled("record and rows commit together", [*atomic, *together])
    if not _inserts(evidence):
        return idle("the code writes no rows; outside effects have their guarantee (`onceward doctor keys`)")
    return empty("rows are written without a record: use gate.atomic(connection, key, ...)")


def _arbiter(evidence: Evidence) -> BoxAnswer:
    looks = [*evidence.code.found("OW131"), *evidence.sql.found("OW201", "OW204", "OW211", "OW215", "OW221")]
    open_tables = [one.place for one in evidence.code.tables if one.is_unique is False]
    if looks or open_tables:
        return empty(
            "a check decides, or nothing does: put UNIQUE on the key, and insert first", [*looks, *open_tables]
        )
    live = [one for one in (evidence.store.tables or ()) if not one.is_unique] if evidence.store else []
    if live:
        return empty(
            f"no UNIQUE on {', '.join(f'{one.name}.{one.column}' for one in live[:3])}: onceward migrate adds one"
        )
    if trouble := _unreadable(evidence):
        return trouble
    if evidence.store is not None:
        if any(one.name == "schema" and not one.ok for one in evidence.store.checks):
            return empty("the store's schema is not current, so its constraints may be missing: onceward store migrate")
        tables = len(evidence.store.tables or ())
        also = f", and so has the key of {count(tables, 'table')} of yours" if tables else ""
        return filled(f"the {evidence.store.kind} store has its unique constraint{also}")
    unique = [one.place for one in evidence.code.tables if one.is_unique]
    if unique or evidence.sql.inserts:
        return filled("a unique constraint decides", [*unique, *(place for place, _ in evidence.sql.inserts)])
    return unknown("the constraint is in the database: pass --store URL to check it")


def _handled(evidence: Evidence) -> BoxAnswer:
    wrong = evidence.sql.found("OW202", "OW203", "OW212")
    if wrong:
        return empty(
            "a second row raises an error, or any error is taken for a duplicate: use ON CONFLICT (key) DO NOTHING",
            wrong,
        )
    bare = evidence.code.bare_inserts
    if bare:
        return empty("an INSERT without ON CONFLICT: use insert_once, or DO NOTHING on the key", bare)
    if trouble := _unreadable(evidence):
        return trouble
    skipped = [place for place, kind in evidence.sql.inserts if kind in ("A", "C")]
    if skipped or evidence.code.guards:
        return filled("the second row is skipped, and the caller knows", [*evidence.code.guards, *skipped])
    gated = [*(one.place for one in evidence.code.operations), *evidence.code.atomic]
    if gated:
        return filled("a gate replays the result to the second caller", gated)
    looks = evidence.code.found("OW131")
    if looks:
        return empty("the second caller runs as well: claim the key first, and replay the result", looks)
    return idle("the code writes no rows")


def _retention(evidence: Evidence) -> BoxAnswer:
    declared = evidence.code.operations
    known = [one for one in declared if one.retain_seconds is not None]
    if known:
        hours = sorted({one.retain_seconds or 0 for one in known})
        said = ", ".join(f"{one / 3600:g} h" for one in hours[:3])
        return filled(
            f"a result is kept {said}; `onceward doctor keys` prints it for your callers",
            [one.place for one in known],
        )
    if declared:
        return unknown(
            "the code does not show retain=: import the modules (`onceward doctor keys MODULE`), or state it",
            [one.place for one in declared],
        )
    if evidence.store is not None:
        return filled("`onceward contract` prints how long results are kept: publish that to your callers")
    return unknown(
        "nothing declares how long a result is kept: declare operations with gate.once(retain=), or state it"
    )


def _not_null(evidence: Evidence) -> BoxAnswer:
    wrong = evidence.sql.found("OW205", "OW220", "OW225")
    loose = [one.place for one in evidence.code.tables if not one.is_required]
    if wrong or loose:
        return empty(
            "a key may be NULL or a default, so it does not protect: make it NOT NULL, without a default",
            [*wrong, *loose],
        )
    live = [one for one in (evidence.store.tables or ()) if not one.is_required] if evidence.store else []
    if live:
        return empty(
            f"{', '.join(f'{one.name}.{one.column}' for one in live[:3])} may be NULL: onceward migrate changes that"
        )
    if trouble := _unreadable(evidence):
        return trouble
    if evidence.code.tables or (evidence.store and evidence.store.tables):
        return filled("the key is NOT NULL", [one.place for one in evidence.code.tables])
    if evidence.store is not None:
        return filled("the store's own key is NOT NULL; no other table has a key")
    if evidence.sql.files:
        return filled(f"nothing to the contrary in {count(evidence.sql.files, 'SQL file')}")
    return idle("no table of yours with a key was found; `--store URL` checks the database")


def _no_merge(evidence: Evidence) -> BoxAnswer:
    merges = [*evidence.sql.found("OW210"), *evidence.code.merges]
    if merges:
        return empty("MERGE checks first and inserts afterwards: insert, and let the constraint decide", merges)
    if trouble := _unreadable(evidence):
        return trouble
    return filled(f"none in {count(evidence.code.files, 'Python file')} and {count(evidence.sql.files, 'SQL file')}")


def _migrations(evidence: Evidence) -> BoxAnswer:
    wrong = evidence.sql.found("OW222", "OW223", "OW224", "OW226")
    if wrong:
        return empty(
            "a migration drops something, constrains too early, or leaves out whose key it is: run "
            "`onceward lint migration`",
            wrong,
        )
    if trouble := _unreadable(evidence):
        return trouble
    if evidence.sql.files:
        return filled(f"{count(evidence.sql.files, 'SQL file')}: filled first, constrained afterwards, nothing dropped")
    return idle("there are no SQL files")


def _healthy(evidence: Evidence) -> BoxAnswer:
    if evidence.store is None:
        return unknown("pass --store URL to check a live store")
    if evidence.store.problems:
        said = "; ".join(f"{one.name}: {one.detail}" for one in evidence.store.problems[:3])
        return empty(f"{said}. `onceward store check` shows every check")
    looked = ", ".join(one.name for one in evidence.store.checks) or "open"
    return filled(f"{evidence.store.kind}: {looked}; {count(evidence.store.records, 'record')}")


def _undoubted(evidence: Evidence) -> BoxAnswer:
    if evidence.store is None:
        return unknown("pass --store URL to check a live store")
    if evidence.store.in_doubt:
        waiting = f"{count(evidence.store.in_doubt, 'operation')} in doubt, since {evidence.store.oldest_in_doubt}"
        return empty(f"{waiting}: onceward records list --state in_doubt")
    return filled(f"none of {count(evidence.store.records, 'record')}")


def _journalled(evidence: Evidence) -> BoxAnswer:
    if not evidence.has_store:
        return unknown("pass --store URL to check its journal")
    journal = evidence.journal
    if journal is None or not journal.attempts:
        return idle("no journal is kept in this store")
    if journal.doubled:
        twice = f"{count(len(journal.doubled), 'key')} executed more than once"
        return empty(f"{twice}: onceward journal list --digest {journal.doubled[0]}")
    cut = "the latest " if journal.is_cut else ""
    return filled(
        f"{cut}{count(journal.attempts, 'attempt')} at {count(journal.keys, 'key')}, each executed at most once"
    )


def _described(evidence: Evidence) -> BoxAnswer:
    code = evidence.code
    silent = [one.place for one in code.operations if one.identified_by is None]
    bare = [one.place for one in code.effects if not one.has_key]
    if bare:
        return empty("external calls have no key, so there is nothing to describe: give each call one", bare)
    if silent:
        return unknown("the code does not show how the key is made: onceward doctor keys MODULE", silent)
    described = [*(one.place for one in code.operations), *(one.place for one in code.keys if not one.is_given)]
    if described:
        return filled(f"{count(len(set(described)), 'sentence')}: onceward doctor keys", described)
    return unknown(f"no key in {count(code.files, 'file')}: pass more files with --path, or state it")


DISCIPLINES: Final = (
    Box(
        "same-transaction",
        PROMISE,
        "The key is recorded in the same transaction as the effect",
        "code, sql",
        _same_transaction,
    ),
    Box("constraint-decides", PROMISE, "The constraint is trusted as the arbiter", "code, sql, store", _arbiter),
    Box("violation-handled", PROMISE, "The violation is handled instead of avoided", "code, sql", _handled),
    Box(
        "retention-agreed",
        PROMISE,
        "The retention window is agreed with those who depend on it",
        "operations, store",
        _retention,
    ),
    Box("key-not-null", DATABASE, "The key is NOT NULL, without a default", "code, sql, store", _not_null),
    Box("no-merge", DATABASE, "No MERGE stands in for the constraint", "code, sql", _no_merge),
    Box(
        "migration-order",
        DATABASE,
        "Migrations add, fill, tighten, then constrain; nothing is dropped",
        "sql",
        _migrations,
    ),
    Box("store-healthy", RUNNING, "The store passes its own checks", "store", _healthy, follows_code=False),
    Box("nothing-in-doubt", RUNNING, "Nothing waits for a decision", "store", _undoubted, follows_code=False),
    Box(
        "executed-once",
        RUNNING,
        "The journal shows each key executed at most once",
        "journal",
        _journalled,
        follows_code=False,
    ),
    Box(
        "keys-described",
        QUESTION,
        "The key of every external call can be described in one sentence",
        "operations",
        _described,
    ),
)
