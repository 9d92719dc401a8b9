"""
Sends the PostgreSQL store's statements, with as little as possible between us and libpq.

Each statement has numbered parameters and is prepared once on each connection. Its values are sent as the bytes that
PostgreSQL reads, and psycopg's own loaders read the rows. What psycopg does besides for a general statement (finding
types, choosing formats, looking for a prepared statement, building arrays) would cost more than the statement itself.

`StatementSender.talk` is a generator like those of psycopg: `connection.wait` drives it, blocking or awaiting; or
`connection.ask`, if it counts the server's silence by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from struct import Struct
from typing import Any, NamedTuple

import psycopg
from psycopg.abc import Transformer as AnyTransformer
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.postgres import register_default_adapters
from psycopg.pq import ExecStatus, Format
from psycopg.types.numeric import Int8BinaryDumper

from onceward._core.record import Write
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_timeout import with_silence_timeout
from onceward.stores._postgres_url import PostgresTarget

Value = bytes | None

_PLACE = re.compile(r"%\((\w+)\)[sb]")
int8, _int2, _length = Struct(">q").pack, Struct(">h").pack, Struct(">i").pack
_array = Struct(">iiIii").pack
_BINARY, _TUPLES = Format.BINARY, ExecStatus.TUPLES_OK
_TRUE, _FALSE, _NULL = b"\x01", b"\x00", b"\xff\xff\xff\xff"


class ConversionContext(NamedTuple):
    """How values become rows and back (psycopg's AdaptContext)."""

    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] | None
    """The connection whose encoding text is in; None for UTF-8."""
    adapters: AdaptersMap


DEFAULT_CONVERSION = ConversionContext(None, AdaptersMap(types=psycopg.adapters.types))
"""psycopg's own defaults, without what the program has registered for all its connections."""
register_default_adapters(DEFAULT_CONVERSION)
RECORD_CONVERSION = ConversionContext(None, AdaptersMap(DEFAULT_CONVERSION.adapters))
"""The same, but every integer is a bigint, so that a statement's types do not depend on its values."""
RECORD_CONVERSION.adapters.register_dumper(int, Int8BinaryDumper)


def connect_arguments(target: PostgresTarget, reading: ConversionContext) -> dict[str, Any]:
    """The arguments to open a connection with. Nothing is prepared until it is known that there is no pooler."""
    return {**target.parameters, "autocommit": True, "prepare_threshold": None, "context": reading}


class NumberedStatement(NamedTuple):
    """A statement with numbered parameters, all of them binary."""

    name: bytes
    """The name of the prepared statement."""
    sql: bytes
    formats: Sequence[Format]


def numbered_statement(name: str, sql: bytes, order: Sequence[str]) -> NumberedStatement:
    """A statement of ours with numbered parameters, in the order of their values."""
    used = [one for one in order if f"%({one})" in sql.decode()]
    text = _PLACE.sub(lambda place: f"${used.index(place[1]) + 1}", sql.decode())
    return NumberedStatement(f"onceward_{name}".encode(), text.encode(), [Format.BINARY] * len(used))


_FIELDS = tuple(field for field in Write._fields if field != "relaxed")
_ORDER = (*_FIELDS, "lock_timeout", "relaxed", "expect")

CLAIM = numbered_statement("claim", rows.CLAIM, _ORDER)
INSERT = numbered_statement("insert", rows.INSERT, _ORDER)
SWAP = numbered_statement("swap", rows.SWAP, _ORDER)
END, SETTLE = numbered_statement("end", rows.END, _ORDER), numbered_statement("settle", rows.SETTLE, _ORDER)
BATCH = numbered_statement("batch", rows.BATCH, (*rows.BATCH_FIELDS, "lock_timeout", "relaxed"))
ENDS = numbered_statement("ends", rows.ENDS, (*rows.ENDS_FIELDS, "lock_timeout", "relaxed"))
FIND = numbered_statement("find", rows.FIND, ("id",))
FIND_MANY = numbered_statement("find_many", rows.FIND_MANY, ("ids",))
LOOK = numbered_statement("look", rows.peek_statement(), ("ids",))


def put_values(write: Write, expect: bytes | None, lock_timeout: str, relaxed: bool) -> list[Value]:
    """The values of `INSERT`; or of `SWAP`, if a version is expected."""
    id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token = write[:12]
    fence, attempt, first_at, settled_at, lease, replay, forget, codec, result, error, rise, _, holder = write[12:]
    values = [
        *(id, kind.encode(), scope.encode(), key.encode(), operation.encode(), family),
        *(state.encode(), guarantee.encode(), _int2(doubt), fingerprint, version, token),
        *(int8(fence), int8(attempt), int8(first_at)),
        None if settled_at is None else int8(settled_at),
        None if lease is None else int8(lease),
        None if replay is None else int8(replay),
        None if forget is None else int8(forget),
        None if codec is None else codec.encode(),
        *(result, error, _TRUE if rise else _FALSE, holder),
        *(lock_timeout.encode(), _TRUE if relaxed else _FALSE),
    ]
    if expect is not None:
        values.append(expect)
    return values


def claim_values(write: Write, lock_timeout: str, relaxed: bool) -> list[Value]:
    """The values of `CLAIM`."""
    return [*new_claim_values(write), lock_timeout.encode(), _TRUE if relaxed else _FALSE]


def new_claim_values(write: Write) -> list[Value]:
    """What a claim has that nothing precedes."""
    id, kind, scope, key, operation, family, _, guarantee, doubt, fingerprint, version, token, fence = write[:13]
    _, _, _, lease, _, _, _, _, _, _, _, holder = write[13:]
    return [
        *(id, kind.encode(), scope.encode(), key.encode(), operation.encode(), family),
        *(guarantee.encode(), _int2(doubt), fingerprint, version, token, int8(fence), int8(lease), holder),
    ]


def end_values(write: Write, expect: bytes, lock_timeout: str, relaxed: bool) -> list[Value]:
    """The values of `END`."""
    return [*ending_values(write), lock_timeout.encode(), _TRUE if relaxed else _FALSE, expect]


def settle_values(write: Write, expect: bytes, lock_timeout: str, relaxed: bool) -> list[Value]:
    """The values of `SETTLE`."""
    return [*settling_values(write), lock_timeout.encode(), _TRUE if relaxed else _FALSE, expect]


def settling_values(write: Write) -> list[Value]:
    """What a usual settle changes."""
    replay, forget, codec, result = write[17:21]
    return [
        *(write.id, write.version, write.token, int8(replay), None if forget is None else int8(forget)),
        *(None if codec is None else codec.encode(), result),
    ]


def ending_values(write: Write) -> list[Value]:
    """What a write changes that keeps its fence."""
    settled_at, lease, replay, forget, codec, result, error, _, _, holder = write[15:]
    return [
        *(write.id, write.state.encode(), _int2(write.doubt), write.version, write.token),
        None if settled_at is None else int8(settled_at),
        None if lease is None else int8(lease),
        None if replay is None else int8(replay),
        None if forget is None else int8(forget),
        None if codec is None else codec.encode(),
        *(result, error, holder),
    ]


class _Kind(NamedTuple):
    """A PostgreSQL type: its OID, and how a value of it becomes bytes."""

    oid: int
    spell: Callable[[Any], bytes] | None
    """None if values are bytes already."""


_KINDS = {
    "bytea": _Kind(17, None),
    "text": _Kind(25, str.encode),
    "bigint": _Kind(20, int8),
    "smallint": _Kind(21, _int2),
    "boolean": _Kind(16, (_FALSE, _TRUE).__getitem__),
}
_COLUMNS = tuple(_KINDS[rows.TYPES[field]] for field in rows.BATCH_FIELDS)
_ENDS_COLUMNS = tuple(_KINDS[rows.TYPES[field]] for field in rows.ENDS_FIELDS)


def array_of(kind: _Kind, values: Sequence[Any]) -> bytes:
    """An array in PostgreSQL's binary form: dimensions, null flag, type, length, lower bound; then the values."""
    oid, spell = kind
    head = _array(1, 1, oid, len(values), 1)
    nulls = values.count(None)
    if nulls == len(values):
        return head + _NULL * nulls
    if nulls:
        spelt = [one if one is None or spell is None else spell(one) for one in values]
        return b"".join((head, *(_NULL if one is None else _length(len(one)) + one for one in spelt)))
    data = values if spell is None else list(map(spell, values))
    lengths = set(map(len, data))
    if len(lengths) == 1:  # Ids, versions, numbers, and most words: no loop of ours.
        prefix = _length(lengths.pop())
        return b"".join((head, prefix, prefix.join(data)))
    return b"".join((head, *(_length(len(one)) + one for one in data)))


def batch_values(puts: Sequence[tuple[Write, bytes | None]], lock_timeout: str, relaxed: bool) -> list[Value]:
    """The values of `BATCH`: an array for each column."""
    columns = zip(*((*rows.without_relaxed(write), expect) for write, expect in puts), strict=True)
    values = [array_of(kind, column) for kind, column in zip(_COLUMNS, columns, strict=True)]
    return [*values, lock_timeout.encode(), _TRUE if relaxed else _FALSE]


def ends_values(puts: Sequence[tuple[Write, bytes | None]], lock_timeout: str, relaxed: bool) -> list[Value]:
    """The values of `ENDS`."""
    columns = zip(*((*rows.ending_of(write), expect) for write, expect in puts), strict=True)
    values = [array_of(kind, column) for kind, column in zip(_ENDS_COLUMNS, columns, strict=True)]
    return [*values, lock_timeout.encode(), _TRUE if relaxed else _FALSE]


def ids_value(ids: Sequence[bytes]) -> list[Value]:
    """The value of `FIND_MANY` and `LOOK`: an array of ids."""
    return [array_of(_KINDS["bytea"], ids)]


class StatementSender:
    """Sends numbered statements on one connection."""

    __slots__ = ("_connection", "_loader", "_prepared")

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._loader = Transformer(connection)
        self._prepared: set[bytes] = set()

    def talk(
        self, statement: NumberedStatement, values: Sequence[Value], silence: float = 0.0
    ) -> Generator[Any, Any, list[Any]]:
        """
        Send a statement; its rows. Behind a pooler nothing is prepared, because sessions are shared.

        With `silence`, it is an error if the server says nothing for so many seconds.
        """
        pgconn, (name, sql, formats) = self._connection.pgconn, statement
        if name in self._prepared:
            pgconn.send_query_prepared(name, values, formats, _BINARY)
        elif self._connection.prepare_threshold is None:
            pgconn.send_query_params(sql, values, None, formats, _BINARY)
        else:
            pgconn.send_prepare(name, sql)
            preparing = execute(pgconn)
            [result] = yield from (with_silence_timeout(preparing, silence) if silence else preparing)
            check_result(result)
            self._prepared.add(name)
            pgconn.send_query_prepared(name, values, formats, _BINARY)
        asked = execute(pgconn)
        results = yield from (with_silence_timeout(asked, silence) if silence else asked)
        result = results[-1]
        if result.status != _TUPLES:
            check_result(result)
        loader = self._loader
        loader.set_pgresult(result)
        return loader.load_rows(0, result.ntuples, tuple)


def check_result(result: Any, encoding: str = "utf-8") -> None:
    """Raise the error in a result of libpq, if it is one; its message is in the client's encoding."""
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(result, encoding=encoding)


def load_rows(result: Any, loader: AnyTransformer) -> list[Any]:
    """The rows of a result of libpq."""
    loader.set_pgresult(result)
    return loader.load_rows(0, result.ntuples, tuple)
