"""
Requests to the SQL engine (`SqlStatement`, `SqlRequest`; `Keyed` and `Step` are their identity) and its results
(`SqlResult`, `SqlBatchResult`, `TableInfo`).

A request is checked here, before it goes anywhere: what cannot work is refused without having been run. Its plain form
(`SqlRequest.document`) is what goes to a worker and, for a key, what is compared with the first request under that key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from json import loads
from typing import Any, NamedTuple, Self, TypeAlias

from onceward._core.canonical import canonical, canonical_texts
from onceward._core.display_text import json_kind
from onceward._core.errors import RequestInvalid
from onceward._core.fingerprint import fingerprint_canonical, fingerprint_form
from onceward.protocol.errors import SqlError, SqlKind
from onceward.protocol.sql_values import Value, blob_to_json, json_text, to_sqlite
from onceward.service.sql.costs import NO_COST, SqlCost
from onceward.service.sql.limits import Limits
from onceward.service.sql.statement_parser import READS, ParsedStatement, parse_statement

Params: TypeAlias = list[Any] | tuple[Any, ...] | Mapping[str, Any] | None
"""Values for `?` as a list, for `:name` as a mapping."""


_REMEMBERED_CHARACTERS = 2_000
"""Of a statement the form of which is kept: two megabytes in all, at most."""
_TEXTS = frozenset((str, type(None)))
_FORM_AFTER = b"]]}"
"""How the canonical form of a request with one statement ends, behind its parameters."""

Dialect: TypeAlias = Callable[[str, Params], Any]
"""Makes plain data of the parameters of a statement."""


class SqlStatement(NamedTuple):
    """One SQL statement and its parameters."""

    sql: str
    params: Params = None


class Keyed(NamedTuple):
    """The identity of a request: who is calling, and the key of what is to happen."""

    scope: str
    key: str


class Step(NamedTuple):
    """The identity of a plan's step: who is calling, the plan, and the step in it."""

    scope: str
    plan: str
    step: str


Identity: TypeAlias = Keyed | Step
"""What makes two requests the same: a key, or a step of a plan."""


class SqlRequest(NamedTuple):
    """A checked request: statements that happen together, or not at all."""

    statements: tuple[tuple[str, Any], ...]
    """Each with its parameters in plain form: a list, or an object by name."""
    identity: Identity | None = None
    readonly: bool = False
    batch: bool = False
    about: Any = None
    """What else the key stands for, besides the statements."""
    replay_only: bool = False
    """Whether only a result that is there already may be returned."""
    growth: int | None = None
    """How many bytes it may add to what its database uses."""

    @property
    def reads(self) -> bool:
        """Whether a reader can serve it, as far as one can see."""
        return self.identity is None and all(is_read_only(parse_statement(sql)) for sql, _ in self.statements)

    @property
    def repeatable(self) -> bool:
        """Whether it may be done again without knowing if it was done: it has a key, or may not write."""
        return self.identity is not None or self.readonly

    def fingerprint_fields(self) -> dict[str, Any]:
        """What a retry under the same key must equal, whichever database it is sent to: a key moves with its own."""
        statements = [(sql, in_one_form(params)) for sql, params in self.statements]
        return {"statements": statements, "batch": self.batch, "about": self.about}

    def fingerprint(self) -> bytes:
        """The fingerprint of these fields. Of one statement with texts as parameters, only those are looked at anew."""
        if len(self.statements) == 1 and not self.batch and self.about is None:
            sql, params = self.statements[0]
            if type(params) is list and len(sql) <= _REMEMBERED_CHARACTERS and _TEXTS.issuperset(map(type, params)):
                try:
                    return fingerprint_form(_form_before(sql) + canonical_texts(params) + _FORM_AFTER)
                except RequestInvalid:
                    pass  # Below, it is said where.
        return fingerprint_canonical(self.fingerprint_fields())

    @classmethod
    def from_document(cls, document: list[Any]) -> Self:
        """The request whose JSON this was, as a worker gets it. Identities are told apart by their length."""
        identity = document[_IDENTITY]
        if identity is not None:
            document[_IDENTITY] = Keyed(*identity) if len(identity) == _KEYED else Step(*identity)
        made: Self = tuple.__new__(cls, document)
        return made


_IDENTITY, _KEYED = SqlRequest._fields.index("identity"), len(Keyed._fields)


@lru_cache(maxsize=500)
def _form_before(sql: str) -> bytes:
    """The canonical form of a request with one statement, up to its parameters."""
    form = canonical(SqlRequest(((sql, []),)).fingerprint_fields())
    return form.removesuffix(b"[]" + _FORM_AFTER)


def is_read_only(reading: ParsedStatement) -> bool:
    """Whether a statement looks as if a reader could serve it."""
    return reading.verb in READS


def build_request(
    statements: Iterable[SqlStatement | tuple[str, Params] | str],
    limits: Limits,
    *,
    identity: Identity | None = None,
    readonly: bool = False,
    batch: bool = False,
    about: Any = None,
    replay_only: bool = False,
    growth: int | None = None,
    dialect: Dialect | None = None,
) -> SqlRequest:
    """
    A checked request; `SqlError` says what is wrong with it. Nothing has begun then.

    `dialect` makes plain data of a statement's parameters, and refuses those that do not fit it: SQLite's, unless said.
    """
    plain = check_statements(tuple(statements), limits, dialect, batch)
    return SqlRequest(plain, identity, readonly, batch, about, replay_only, growth)


def check_statements(
    taken: tuple[SqlStatement | tuple[str, Params] | str, ...], limits: Limits, dialect: Dialect | None, batch: bool
) -> tuple[tuple[str, Any], ...]:
    """Statements with their parameters in plain form; `SqlError` as for `build_request`."""
    try:
        return _checked(taken, limits, dialect, batch)
    except SqlError as error:
        error.began = False
        raise


def _checked(
    taken: tuple[SqlStatement | tuple[str, Params] | str, ...], limits: Limits, dialect: Dialect | None, batch: bool
) -> tuple[tuple[str, Any], ...]:
    if not taken or len(taken) > limits.statements:
        raise SqlError(
            SqlKind.TOO_LARGE if taken else SqlKind.SYNTAX,
            f"the batch has {len(taken)} statements; send 1 to {limits.statements}",
            hint="send it in parts, each with a key of its own",
        )
    plain = []
    for number, one in enumerate(taken):
        try:
            plain.append(_plain(one, limits, dialect))
        except SqlError as error:
            if batch:
                error.statement = number
            raise
    if sum(map(_size_most, plain)) <= limits.request_bytes:
        return tuple(plain)
    size = sum(len(json_text(one)) for one in plain)
    if size > limits.request_bytes:
        raise SqlError(SqlKind.TOO_LARGE, f"the request has {size} bytes, and the limit is {limits.request_bytes}")
    return tuple(plain)


def _size_most(plain: tuple[str, Any]) -> int:
    """What a statement takes as JSON at most: six characters for each of a text's, thirty for a number or a sign."""
    sql, params = plain
    names = "".join(params) if isinstance(params, dict) else ""
    texts = params.values() if isinstance(params, dict) else params
    return 6 * (len(sql) + len(names)) + sum([_value_most(value) for value in texts]) + 30 * (len(params) + 1)


def _value_most(value: Any) -> int:
    if isinstance(value, str):
        return 6 * len(value)
    is_short = value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64)
    return 0 if is_short else _UNKNOWN


_UNKNOWN = 1 << 60
"""More than anybody may send: then it is counted."""


def _plain(
    statement: SqlStatement | tuple[str, Params] | str,
    limits: Limits,
    dialect: Dialect | None,
) -> tuple[str, Any]:
    sql, params = (statement, None) if isinstance(statement, str) else statement
    if not isinstance(sql, str):
        raise SqlError(SqlKind.SYNTAX, f"a statement must be text, not {json_kind(sql)}")
    plainly = sql.isascii()
    if len(sql) > limits.sql_bytes or (not plainly and len(sql.encode("utf-8", "replace")) > limits.sql_bytes):
        raise SqlError(
            SqlKind.TOO_LARGE,
            f"the statement has more than {limits.sql_bytes} bytes",
            hint="put values into parameters, or send it in parts",
        )
    if not plainly and any("\ud800" <= character <= "\udfff" for character in sql):
        raise SqlError(SqlKind.SYNTAX, "the statement contains half of a surrogate pair", hint="send valid Unicode")
    _check_params(params, limits)
    return sql, dialect(sql, params) if dialect is not None else _plain_params(parse_statement(sql), params)


def _check_params(params: Any, limits: Limits) -> None:
    if params is None:
        return
    if type(params) is not list and not isinstance(params, list | tuple | Mapping):
        raise SqlError(
            SqlKind.WRONG_PARAMS,
            f"parameters must be a list for ?, or an object for :name, not {json_kind(params)}",
        )
    if len(params) > limits.parameters:
        raise SqlError(
            SqlKind.TOO_MANY_PARAMS,
            f"there are {len(params)} parameters, and the limit is {limits.parameters}",
            hint="send it in parts",
        )


def _plain_params(reading: ParsedStatement, params: Params) -> Any:
    if type(params) is not list and isinstance(params, Mapping):
        return _named(reading, params)
    if reading.names:
        raise SqlError(
            SqlKind.WRONG_PARAMS,
            "the statement has named parameters; send them as an object by name",
            hint=f"it names {', '.join(sorted(reading.names))[:200]}",
        )
    return [_wire(to_sqlite(value, str(number))) for number, value in enumerate(params or (), 1)]


def _named(reading: ParsedStatement, params: Mapping[str, Any]) -> dict[str, Any]:
    if reading.positions:
        raise SqlError(SqlKind.WRONG_PARAMS, "the statement has ? in it; send its parameters as a list")
    given = {str(name): value for name, value in params.items()}
    missing, unused = reading.names - given.keys(), given.keys() - reading.names
    if missing or unused:
        words = [f"{', '.join(sorted(missing))} missing"] if missing else []
        words += [f"{', '.join(sorted(unused))} not in the statement"] if unused else []
        raise SqlError(SqlKind.WRONG_PARAMS, f"wrong parameters: {'; '.join(words)}"[:500])
    return {name: _wire(to_sqlite(value, f":{name}")) for name, value in sorted(given.items())}


def as_sent(_: str, params: Params) -> Any:
    """Parameters as they came, whether or not any database could take them."""
    if type(params) is list:  # Most are, and to ask for a mapping takes longer.
        return params.copy()
    return dict(sorted(params.items())) if isinstance(params, Mapping) else list(params or ())


def in_one_form(params: Any) -> Any:
    """Parameters in the form that SQLite takes them in, so that a fingerprint does not depend on the database."""
    if type(params) is not list and isinstance(params, Mapping):
        return {name: _one_form(value) for name, value in params.items()}
    return [value if type(value) is str else _one_form(value) for value in params]


def _one_form(value: Any) -> Any:
    if isinstance(value, bool | dict):
        try:
            return _wire(to_sqlite(value, ""))
        except SqlError:  # Only another database has a place for it.
            return value
    return value


def _wire(value: Any) -> Any:
    return blob_to_json(value) if isinstance(value, bytes) else value


@dataclass
class _Result:
    """What a request came to."""

    given: dict[str, Any] | bytes
    """Its document, or the JSON text of it."""
    replayed: bool = False
    """True: the first result under this key; the statements were not run now."""
    cost: SqlCost = NO_COST
    """What this call has used, all its statements together; a replay is cheap, and not free."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """What is stored and sent; a replay's is equal to the first."""
        if isinstance(self.given, dict):
            return self.given
        found: dict[str, Any] = loads(self.given)
        return found


class SqlResult(_Result):
    """The result of one statement."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns; several may be the same."""
        return self.document["columns"]  # type: ignore[no-any-return]

    @property
    def rows(self) -> list[list[Value]]:
        """The rows, values in JSON's forms (see `protocol.sql_values`)."""
        return self.document["rows"]  # type: ignore[no-any-return]

    @property
    def rows_read(self) -> int:
        """How many rows are in the result."""
        return self.document["rowsRead"]  # type: ignore[no-any-return]

    @property
    def rows_written(self) -> int:
        """How many rows were inserted, updated or deleted, by triggers and foreign keys, too."""
        return self.document["rowsWritten"]  # type: ignore[no-any-return]

    @property
    def last_insert_rowid(self) -> Value:
        """The rowid of the last row inserted; None if nothing was. Not meaningful for tables WITHOUT ROWID."""
        return self.document["lastInsertRowid"]  # type: ignore[no-any-return]

    @property
    def meta(self) -> dict[str, Any]:
        """About the first run: `durationMs`."""
        return self.document["meta"]  # type: ignore[no-any-return]


class SqlBatchResult(_Result):
    """The results of a batch, one per statement, in order."""

    @property
    def results(self) -> list[SqlResult]:
        """One per statement."""
        return [SqlResult(one, self.replayed) for one in self.document["results"]]

    @property
    def rows_written(self) -> int:
        """How many rows were written in all."""
        return self.document["rowsWritten"]  # type: ignore[no-any-return]


class ColumnInfo(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    primary_key: bool


class TableInfo(NamedTuple):
    """A table or a view of a database."""

    name: str
    kind: str
    """`table` or `view`."""
    columns: list[ColumnInfo]
    rows: int | None
    """How many rows, about; None for a view."""
    exact: bool
    """Whether `rows` was counted; otherwise it is an upper bound, from the largest rowid, or a lower one."""
