"""
What a tenant's SQL may touch: nothing, unless it is listed here.

SQLite asks before it compiles each action of a statement. `SqlAuthorizer.authorize` looks the action up in `RULES`,
where every action code is listed; a code that is not there (one of a later SQLite) is denied. The engine's own
statements run on
the same connection, with `mode` OWN. A statement that was compiled for one mode is never run in another: the texts of
a tenant's statements carry their mode in front (`SqlAuthorizer.marked`), so that the driver's statement cache keeps
them apart.

Tables called `onceward_…` do not exist for a tenant. Neither does the schema table, which would show them; the engine's
`tables()` and PRAGMA table_info show what is the tenant's own.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import TypeAlias

from onceward.protocol.errors import SqlError, SqlKind

OWN_PREFIX = "onceward_"
NAMES_MAX = 10_000
"""As in `Limits.compiled_names`."""
_SCHEMA = frozenset(("sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"))

_PEEPHOLES = frozenset(("dbstat", "bytecode", "tables_used", "fsdir"))
"""Virtual tables that some builds of SQLite have, and that show more than the tenant's rows."""

_LOOKS = frozenset(("table_info", "table_xinfo", "index_list", "index_info", "index_xinfo", "foreign_key_list"))
"""PRAGMAs that tell about one table or index; it must be named, and be the tenant's own."""
_NUMBERS = frozenset(("user_version", "application_id"))
"""PRAGMAs that hold a number of the tenant's; setting one is a write like any other."""
_SETTINGS = frozenset(("encoding", "foreign_keys", "page_count", "page_size", "freelist_count", "max_page_count"))
"""PRAGMAs that may be read."""
OUTSIDE_TRANSACTIONS = frozenset(
    ("journal_mode", "synchronous", "locking_mode", "wal_checkpoint", "auto_vacuum", "incremental_vacuum")
)
"""PRAGMAs that could not do anything inside a transaction anyway, and are refused as that."""

TABLE_FUNCTIONS = frozenset(("json_each", "json_tree", *(f"pragma_{name}" for name in sorted(_LOOKS))))

FUNCTIONS = frozenset(
    re.findall(
        r"\S+",
        """
        abs avg changes char coalesce concat concat_ws count cume_dist current_date current_time current_timestamp date
        datetime dense_rank first_value format glob group_concat hex if ifnull iif instr julianday lag last_insert_rowid
        last_value lead length like likelihood likely lower ltrim max median min nth_value ntile nullif octet_length
        percent_rank percentile percentile_cont percentile_disc printf quote random randomblob rank replace round
        row_number rtrim sign strftime string_agg substr substring subtype sum time timediff total total_changes trim
        typeof unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob

        acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow
        power radians sin sinh sqrt tan tanh trunc

        -> ->> json json_array json_array_length json_error_position json_extract json_group_array json_group_object
        json_insert json_object json_patch json_pretty json_quote json_remove json_replace json_set json_type json_valid
        jsonb jsonb_array jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch
        jsonb_remove jsonb_replace jsonb_set raise
        """,
    )
)
"""What may be called: functions of their arguments and of the tenant's own data. `load_extension` is not here."""

QUADRATIC = frozenset(("instr", "replace", "like", "glob"))
"""One instruction that takes the product of two lengths: quick only with short values."""
NEVER_QUICK = frozenset(("json_patch", "jsonb_patch", "unhex"))
"""The same with values of a few kilobytes already."""

_IN_ALTER = frozenset(
    (
        "sqlite_rename_table",
        "sqlite_rename_column",
        "sqlite_rename_test",
        "sqlite_rename_quotefix",
        "sqlite_drop_column",
    )
)
"""What SQLite itself calls to carry an ALTER TABLE out."""


class AuthorizerMode(StrEnum):
    """On whose behalf a statement runs."""

    OWN = "own"
    WRITE = "write"
    READ = "read"


Names: TypeAlias = tuple[str, str, str]
"""The two names of an action and its database, empty where SQLite gives none."""


class TenantStatement:
    """A tenant's statement, for the length of a `with` block; whatever ends it, the connection is ours again."""

    __slots__ = ("_guard", "_mode", "_verb")

    def __init__(self, guard: SqlAuthorizer, mode: AuthorizerMode, verb: str) -> None:
        self._guard, self._mode, self._verb = guard, mode, verb

    def __enter__(self) -> None:
        self._guard.begin(self._mode, self._verb)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._guard.mode = AuthorizerMode.OWN


class SqlAuthorizer:
    """The authorizer of one connection."""

    def __init__(self, *, names_max: int = NAMES_MAX, quick: bool = False) -> None:
        self._names_max = names_max
        self._names = 0
        self.quick = quick
        """Whether a statement must not be able to keep others waiting: some functions are refused then, for now."""
        self.short_values = False
        """Whether the connection takes no long values now: then the functions in `QUADRATIC` are quick."""
        self.needs_short_values = False
        """Whether the last statement was refused because it calls one of those."""
        self.needs_time = False
        """Whether the last statement was refused because it may take long, and not for good."""
        self.mode = AuthorizerMode.OWN
        self.verb = ""
        """The verb of the tenant's statement that is running."""
        self.previous: tuple[int, str] = (0, "")
        """The action that SQLite asked about before, and its first name."""
        self.refusal: SqlError | None = None
        """Why the last statement was denied: SQLite itself only says that it was."""

    def marked(self, sql: str) -> str:
        """A tenant's statement as it is compiled, in words that no other mode uses."""
        return f"/*{self.mode}*/{sql}"

    def tenant(self, mode: AuthorizerMode, verb: str) -> TenantStatement:
        """Run a tenant's statement inside."""
        return TenantStatement(self, mode, verb)

    def begin(self, mode: AuthorizerMode, verb: str) -> None:
        """A tenant's statement begins; for `TenantStatement`."""
        self.mode, self.verb, self.refusal = mode, verb, None
        self._names, self.needs_short_values, self.needs_time = 0, False, False

    def authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, _inside: str | None
    ) -> int:
        """SQLite's question, and its answer."""
        if self.mode is AuthorizerMode.OWN:
            return sqlite3.SQLITE_OK
        names = (first or "", second or "", database or "")
        rule = RULES.get(action)
        refusal = rule(self, names) if rule is not None else _denied("this kind of statement is not allowed here")
        self._names += 1
        if self._names > self._names_max:
            # SQLite compiles for as long as it takes, and nothing interrupts it: this is where one can.
            refusal = SqlError(
                SqlKind.TOO_LARGE,
                f"the statement names more than {self._names_max} tables, columns and functions, views taken apart",
                hint="make it smaller: views of views multiply",
            )
        self.previous = action, names[0]
        if refusal is None:
            return sqlite3.SQLITE_OK
        self.refusal = self.refusal or refusal
        return sqlite3.SQLITE_DENY

    def takes_time(self, function: str) -> SqlError | None:
        """Whether a call can be one long instruction. It is refused here only so that it runs elsewhere."""
        self.needs_time |= function in NEVER_QUICK
        self.needs_short_values |= function in QUADRATIC and not self.short_values
        return _denied(f"{function} can take long") if self.needs_time or self.needs_short_values else None

    def writes(self) -> SqlError | None:
        """Whether this may write."""
        return None if self.mode is AuthorizerMode.WRITE else readonly_error()


def readonly_error() -> SqlError:
    """The error for a write with a token that may only read."""
    return SqlError(
        SqlKind.READONLY, "this statement writes, and the token may only read", hint="use a token that may write"
    )


Rule: TypeAlias = Callable[[SqlAuthorizer, Names], SqlError | None]


def _denied(message: str, hint: str | None = None) -> SqlError:
    return SqlError(SqlKind.DENIED, message, hint=hint)


def is_own_name(name: str) -> bool:
    """Whether a name is that of a table, an index or a trigger of ours; indexes of SQLite's carry it inside."""
    return OWN_PREFIX in name.lower()


def _no_such(name: str) -> SqlError:
    return SqlError(SqlKind.DENIED, f"names with {OWN_PREFIX!r} in them belong to the service", table=name)


def _allow(_guard: SqlAuthorizer, _names: Names) -> SqlError | None:
    return None


def _never(what: str, hint: str | None = None) -> Rule:
    def rule(_guard: SqlAuthorizer, _names: Names) -> SqlError | None:
        return _denied(f"{what} is not allowed here", hint)

    return rule


def _read(guard: SqlAuthorizer, names: Names) -> SqlError | None:
    table, column, _ = names
    if is_own_name(table):
        return _no_such(table)
    if table.lower() in _SCHEMA:
        # Only SQLite itself reads the schema while it changes it: no query of a tenant's fits into ALTER or DROP. One
        # does fit into CREATE TABLE ... AS, but not behind the update of the schema.
        updates = guard.previous == (sqlite3.SQLITE_UPDATE, table)
        if guard.verb in ("ALTER", "DROP") or (guard.verb == "CREATE" and column == "ROWID" and updates):
            return None
        return _denied(
            f"{table} is not available: it also lists the service's own tables",
            "ask for the list of tables, or use PRAGMA table_info(your_table)",
        )
    if table.lower() in _PEEPHOLES or (table.lower().startswith("sqlite_") and table.lower() != "sqlite_sequence"):
        return _denied(f"{table} is not allowed here")
    pragma = table.lower().startswith("pragma_") and table.lower() not in TABLE_FUNCTIONS
    if pragma and (guard.verb, table) != ("ALTER", "pragma_quick_check"):
        return _denied(f"{table} is not allowed here")
    return None


def _write(guard: SqlAuthorizer, names: Names) -> SqlError | None:
    table = names[0]
    if is_own_name(table):
        return _no_such(table)
    if names[2] == "temp" and guard.verb != "ALTER":
        return _denied("temporary tables are not allowed here: requests share nothing but the database")
    if table.lower().startswith("sqlite_") and guard.verb not in ("CREATE", "ALTER", "DROP"):
        return _denied(f"{table} is SQLite's own")
    return guard.writes()


def _schema_change(guard: SqlAuthorizer, names: Names) -> SqlError | None:
    for name in names[:2]:
        if is_own_name(name):
            return _no_such(name)
    return guard.writes()


def _pragma(guard: SqlAuthorizer, names: Names) -> SqlError | None:
    pragma, argument = names[0].lower(), names[1]
    if pragma in _LOOKS:
        return _no_such(argument) if is_own_name(argument) else None
    if pragma in _NUMBERS:
        return guard.writes() if argument else None
    if pragma in _SETTINGS and not argument:
        return None
    if pragma == "quick_check" and guard.verb == "ALTER":
        return None
    if pragma in OUTSIDE_TRANSACTIONS:
        return SqlError(
            SqlKind.NOT_IN_TRANSACTION, f"PRAGMA {pragma} has no effect inside a transaction, and is refused"
        )
    known = sorted(_LOOKS | _NUMBERS | _SETTINGS)
    return _denied(f"PRAGMA {pragma} is not allowed here", f"there are {', '.join(known)}")


def _function(guard: SqlAuthorizer, names: Names) -> SqlError | None:
    function = names[1].lower()
    if function in FUNCTIONS or (function in _IN_ALTER and guard.verb == "ALTER"):
        return guard.takes_time(function) if guard.quick else None
    return _denied(f"the function {function[:60]} is not allowed here")


def _reindex(guard: SqlAuthorizer, names: Names) -> SqlError | None:
    """Creating an index asks for this, too."""
    return _schema_change(guard, names) if guard.verb == "CREATE" else _denied("REINDEX is not allowed here")


_TEMPORARY = _never("a temporary table, view, index or trigger", "requests share nothing but the database")
_VIRTUAL = _never("a virtual table")
_TRANSACTION = _never("ending or beginning a transaction", "every request is a transaction; use a batch")

RULES: dict[int, Rule] = {
    sqlite3.SQLITE_CREATE_INDEX: _schema_change,
    sqlite3.SQLITE_CREATE_TABLE: _schema_change,
    sqlite3.SQLITE_CREATE_TEMP_INDEX: _TEMPORARY,
    sqlite3.SQLITE_CREATE_TEMP_TABLE: _TEMPORARY,
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER: _TEMPORARY,
    sqlite3.SQLITE_CREATE_TEMP_VIEW: _TEMPORARY,
    sqlite3.SQLITE_CREATE_TRIGGER: _schema_change,
    sqlite3.SQLITE_CREATE_VIEW: _schema_change,
    sqlite3.SQLITE_DELETE: _write,
    sqlite3.SQLITE_DROP_INDEX: _schema_change,
    sqlite3.SQLITE_DROP_TABLE: _schema_change,
    sqlite3.SQLITE_DROP_TEMP_INDEX: _TEMPORARY,
    sqlite3.SQLITE_DROP_TEMP_TABLE: _TEMPORARY,
    sqlite3.SQLITE_DROP_TEMP_TRIGGER: _TEMPORARY,
    sqlite3.SQLITE_DROP_TEMP_VIEW: _TEMPORARY,
    sqlite3.SQLITE_DROP_TRIGGER: _schema_change,
    sqlite3.SQLITE_DROP_VIEW: _schema_change,
    sqlite3.SQLITE_INSERT: _write,
    sqlite3.SQLITE_PRAGMA: _pragma,
    sqlite3.SQLITE_READ: _read,
    sqlite3.SQLITE_SELECT: _allow,
    sqlite3.SQLITE_TRANSACTION: _TRANSACTION,
    sqlite3.SQLITE_UPDATE: _write,
    sqlite3.SQLITE_ATTACH: _never("another database", "VACUUM INTO, too, would write one"),
    sqlite3.SQLITE_DETACH: _never("another database"),
    sqlite3.SQLITE_ALTER_TABLE: _schema_change,
    sqlite3.SQLITE_REINDEX: _reindex,
    sqlite3.SQLITE_ANALYZE: _never("ANALYZE", "its statistics would also count the service's own tables"),
    sqlite3.SQLITE_CREATE_VTABLE: _VIRTUAL,
    sqlite3.SQLITE_DROP_VTABLE: _VIRTUAL,
    sqlite3.SQLITE_FUNCTION: _function,
    sqlite3.SQLITE_SAVEPOINT: _TRANSACTION,
    sqlite3.SQLITE_RECURSIVE: _allow,  # Recursion ends at the deadline, or at the memory limit.
}
"""Every action that SQLite asks about, and the rule for it."""
