"""
Sends the statements of atomic mode on the caller's psycopg connection, through libpq's pipeline.

`exchange` is a generator as psycopg's own are: `connection.wait` drives it, in either colour. Several statements are
written into libpq's pipeline, sent off at once, and their answers are read in one go. psycopg's own pipeline would
flush and wait around each of them.

What is prepared is kept where psycopg keeps what it has prepared. It deallocates everything after a rollback, after a
DROP or an ALTER, and what was used least when there is too much; so it has to know of ours, and we have to hear of it.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg.abc import Transformer as AnyTransformer
from psycopg.adapt import Transformer
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus

from onceward._core.record import Write
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_errors import NoticeListener
from onceward.stores._postgres_wire import (
    DEFAULT_CONVERSION,
    Value,
    check_result,
    load_rows,
    numbered_statement,
)

Connection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
_Names: TypeAlias = OrderedDict[tuple[bytes, tuple[int, ...]], bytes]

_ORDER = (*(field for field in Write._fields if field != "relaxed"), "lock_timeout", "expect", "xid")
_TYPES = {**rows.TYPES, "lock_timeout": "text"}
_UTF8, _NO_ENCODING = b"UTF8", b"SQL_ASCII"
_KEPT_IN = "_prepared"
"""Where psycopg remembers what it has prepared. Not documented; if it moves, nothing of ours is prepared."""
_numbers = count()
_loaders: weakref.WeakKeyDictionary[Connection, AnyTransformer] = weakref.WeakKeyDictionary()
"""Each made without its connection: it would keep that alive. It reads UTF-8 then."""


class PreparableStatement(NamedTuple):
    """A statement of ours with its parameters by number, all of them binary."""

    sql: bytes
    formats: Sequence[Format] = ()
    texts: Sequence[int] = ()
    """Which of the parameters are text."""
    name: bytes = b""
    """How the names begin that it is prepared under, if it is run often enough for that."""


def preparable(sql: bytes, *, prepares: bool = False) -> PreparableStatement:
    """A statement as it is sent."""
    used = [name for name in _ORDER if b"%%(%b)" % name.encode() in sql]
    texts = [place for place, name in enumerate(used) if _TYPES.get(name) == "text"]
    plain = numbered_statement("", sql, _ORDER)
    # Of the statement itself: behind a pooler a session may know the name from somebody else.
    name = b"onceward_atomic_%b_" % sha256(plain.sql).hexdigest()[:16].encode() if prepares else b""
    return PreparableStatement(plain.sql, plain.formats, texts, name)


class BoundStatement(NamedTuple):
    """One statement, and what it binds."""

    spoken: PreparableStatement
    values: Sequence[Value] = ()


class SendStatements(NamedTuple):
    """Send these, in one round trip if libpq can; the answer is the rows of each."""

    statements: Sequence[BoundStatement]
    opening: bytes | None = None
    """What goes in front of them, and is not answered: BEGIN, or a savepoint."""


class SendRollback(NamedTuple):
    """Roll back, and have psycopg drop what it has prepared, as after a rollback of its own: a table may be gone."""

    sql: bytes


class _Step(NamedTuple):
    send: Callable[..., None]
    arguments: Sequence[Any]
    answered: Callable[[Any], None] | None


def exchange(
    connection: Connection, effect: SendStatements | SendRollback, answers: list[Any]
) -> Generator[Any, Any, None]:
    """
    Send, and add the rows of each statement to the answers. If one fails, that many have been answered before it.

    Whatever interrupts it, wherever that is: no answer is left for the next statement to find.
    """
    listener = NoticeListener()
    connection.add_notice_handler(listener)
    try:
        if isinstance(effect, SendRollback):
            yield from _undo(connection, effect)
            return
        steps = _steps(connection, effect, answers)
        if len(steps) > 1 and psycopg.Pipeline.is_supported():
            yield from _together(connection, steps)
        else:
            yield from _one_by_one(connection, steps)
        listener.check()
    finally:
        _leave_pipeline(connection.pgconn)
        connection.remove_notice_handler(listener)


def _undo(connection: Connection, effect: SendRollback) -> Generator[Any, Any, None]:
    """Not through a cursor: psycopg would prepare a rollback, too, and drop things only the first time it sees one."""
    yield from _one_by_one(connection, [_Step(connection.pgconn.send_query_params, (effect.sql, None), None)])
    kept: Any = getattr(connection, _KEPT_IN, None)
    if hasattr(kept, "maintain_gen") and kept.clear():
        yield from kept.maintain_gen(connection)


def forget_prepared(connection: Connection, effect: SendStatements | SendRollback) -> None:
    """That these are prepared: the server does not know them any more, or they no longer fit."""
    names = _names(connection)
    if names is not None and isinstance(effect, SendStatements):
        for statement in effect.statements:
            names.pop((statement.spoken.sql, ()), None)


def _names(connection: Connection) -> _Names | None:
    """What psycopg knows to be prepared; None where nothing shall be, or psycopg keeps it in some other way."""
    if connection.prepare_threshold is None:
        return None
    return getattr(getattr(connection, _KEPT_IN, None), "_names", None)


def _steps(connection: Connection, effect: SendStatements, answers: list[Any]) -> list[_Step]:
    pgconn = connection.pgconn
    names = _names(connection)
    as_we_spell = _is_utf8(pgconn)
    steps: list[_Step] = []
    if effect.opening is not None:
        steps.append(_Step(pgconn.send_query_params, (effect.opening, None), None))

    def answered(result: Any) -> None:
        answers.append(_rows(connection, result, as_we_spell))

    for (sql, formats, texts, prefix), values in effect.statements:
        if not as_we_spell:
            values = _reencoded(values, texts, connection.info.encoding)
        if names is None or not prefix:
            arguments = (sql, values or None, None, formats or None, Format.BINARY)
            steps.append(_Step(pgconn.send_query_params, arguments, answered))
            continue
        key = (sql, ())
        name = names.get(key)
        if name is None:
            name = prefix + b"%d" % next(_numbers)
            steps.append(_Step(pgconn.send_prepare, (name, sql), _keeping(names, key, name)))
        else:
            names.move_to_end(key)
        steps.append(_Step(pgconn.send_query_prepared, (name, values, formats, Format.BINARY), answered))
    return steps


def _is_utf8(pgconn: Any) -> bool:
    """Whether our words are sent in UTF-8, as the store sends them, and not in the encoding of the client."""
    client = pgconn.parameter_status(b"client_encoding")
    return client in (_UTF8, _NO_ENCODING) or pgconn.parameter_status(b"server_encoding") == _NO_ENCODING


def would_garble_text(connection: Connection) -> bool:
    """Whether words would be kept as they are sent, in a database that is kept in another encoding than UTF-8."""
    status_of = connection.pgconn.parameter_status
    return status_of(b"client_encoding") == _NO_ENCODING and status_of(b"server_encoding") not in (_UTF8, _NO_ENCODING)


def _keeping(names: _Names, key: tuple[bytes, tuple[int, ...]], name: bytes) -> Callable[[Any], None]:
    return lambda _: names.__setitem__(key, name)


def _reencoded(values: Sequence[Value], texts: Sequence[int], encoding: str) -> list[Value]:
    """Binary text is in the client's encoding, as any other is."""
    respelt = list(values)
    for place in texts:
        text = values[place]
        respelt[place] = None if text is None else text.decode().encode(encoding)
    return respelt


def _one_by_one(connection: Connection, steps: Sequence[_Step]) -> Generator[Any, Any, None]:
    for step in steps:
        step.send(*step.arguments)
        results = yield from execute(connection.pgconn)
        _take(connection, step, results[-1])


def _together(connection: Connection, steps: Sequence[_Step]) -> Generator[Any, Any, None]:
    results = yield from _results(connection.pgconn, steps)
    for step, result in zip(steps, results, strict=False):
        _take(connection, step, result)
    if len(results) < len(steps):
        raise psycopg.OperationalError("the connection was lost before everything was answered")


def _results(pgconn: Any, steps: Sequence[_Step]) -> Generator[Any, Any, list[Any]]:
    """Send all at once. As many results as came before the connection was lost."""
    results: list[Any] = []
    try:
        pgconn.enter_pipeline_mode()
        for step in steps:
            step.send(*step.arguments)
        pgconn.pipeline_sync()
        yield from send(pgconn)
        for _ in range(len(steps) + 1):  # The last one answers the sync.
            results += yield from fetch_many(pgconn)
    except psycopg.DatabaseError:
        if all(result.status != ExecStatus.FATAL_ERROR for result in results):
            raise  # Else the server has said why, before it hung up.
    finally:
        _leave_pipeline(pgconn)  # And once more in `exchange`: this line may be the one that is interrupted.
    return results


def _leave_pipeline(pgconn: Any) -> None:
    """Out of pipeline mode. A connection with answers still on their way is of no use to anybody: close it."""
    if pgconn.status != ConnStatus.OK:
        return
    try:
        if pgconn.pipeline_status != PipelineStatus.OFF:
            pgconn.exit_pipeline_mode()
    except psycopg.Error:
        pgconn.finish()
    else:
        if pgconn.transaction_status == TransactionStatus.ACTIVE:
            pgconn.finish()


def _take(connection: Connection, step: _Step, result: Any) -> None:
    check_result(result, connection.info.encoding)
    if step.answered is not None:
        step.answered(result)


def _rows(connection: Connection, result: Any, as_we_spell: bool) -> list[Any]:
    if not result.ntuples:
        return []
    return load_rows(result, _loader(connection, as_we_spell))


def _loader(connection: Connection, as_we_spell: bool) -> AnyTransformer:
    if not as_we_spell:
        return Transformer(DEFAULT_CONVERSION._replace(connection=connection))
    loader = _loaders.get(connection)
    if loader is None:
        loader = _loaders[connection] = Transformer(DEFAULT_CONVERSION)
    return loader
