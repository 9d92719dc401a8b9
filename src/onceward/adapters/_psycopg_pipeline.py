"""
Sends the statements of atomic mode on the caller's psycopg connection, through libpq's pipeline.

`exchange` is a generator as psycopg's own are: `connection.wait` drives it, in either colour. Several statements are
written into libpq's pipeline, sent off at once, and their answers are read in one go. psycopg's own pipeline would
flush and wait around each of them.

What is prepared is kept where psycopg keeps what it has prepared. It deallocates everything after a rollback, after a
DROP or an ALTER, and what was used least when there is too much; so it has to know of ours, and we have to hear of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg.abc import Transformer as AnyTransformer
from psycopg.adapt import Transformer
from psycopg.generators import execute, send
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.waiting import Wait

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
# libpq's numbers, compared several times for each call: to ask an enumeration for a member takes longer.
_FINE = frozenset(map(int, (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)))
_CONNECTED, _NO_PIPELINE = int(ConnStatus.OK), int(PipelineStatus.OFF)
_ACTIVE, _BINARY = int(TransactionStatus.ACTIVE), int(Format.BINARY)
_SYNC, _READABLE = int(ExecStatus.PIPELINE_SYNC), Wait.R
_numbers = count()
_HAS_PIPELINES = psycopg.Pipeline.is_supported()


class _OfThread(threading.local):
    loader: AnyTransformer
    """Made without a connection, so it reads UTF-8. No other connection has its turn while it reads."""


_of_thread = _OfThread()


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


_Step: TypeAlias = tuple[Callable[..., None], Sequence[Any], bool, Callable[[], None] | None]
"""How something is sent, with which arguments, whether its rows are an answer, and what is to be noted when it is."""


def exchange(
    connection: Connection, effect: SendStatements | SendRollback, answers: list[Any]
) -> Generator[Any, Any, None]:
    """
    Send, and add the rows of each statement to the answers. If one fails, that many have been answered before it.

    Whatever interrupts it, wherever that is: no answer is left for the next statement to find.
    """
    listener = NoticeListener()
    connection.add_notice_handler(listener)
    pgconn = connection.pgconn
    try:
        if isinstance(effect, SendRollback):
            yield from _undo(connection, effect)
            return
        as_we_spell = _is_utf8(pgconn)
        steps = _steps(connection, effect, as_we_spell)
        together = len(steps) > 1 and _HAS_PIPELINES
        results = yield from _sent_together(pgconn, steps) if together else _sent_one_by_one(pgconn, steps)
        for (_, _, answered, noted), result in zip(steps, results, strict=False):
            if result.status not in _FINE:
                check_result(
                    result, connection.info.encoding
                )  # To ask for the encoding takes longer than all the rest.
            if answered:
                answers.append(load_rows(result, _loader(connection, as_we_spell)) if result.ntuples else [])
            elif noted is not None:
                noted()
        if len(results) < len(steps):
            raise psycopg.OperationalError("the connection was lost before everything was answered")
        listener.check()
    finally:
        _leave_pipeline(pgconn)
        connection.remove_notice_handler(listener)


def _undo(connection: Connection, effect: SendRollback) -> Generator[Any, Any, None]:
    """Not through a cursor: psycopg would prepare a rollback, too, and drop things only the first time it sees one."""
    [result] = yield from _sent_one_by_one(
        connection.pgconn, [(connection.pgconn.send_query_params, (effect.sql, None), False, None)]
    )
    check_result(result, connection.info.encoding)
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


def _steps(connection: Connection, effect: SendStatements, as_we_spell: bool) -> list[_Step]:
    pgconn = connection.pgconn
    names = _names(connection)
    steps: list[_Step] = []
    if effect.opening is not None:
        steps.append((pgconn.send_query_params, (effect.opening, None), False, None))
    for (sql, formats, texts, prefix), values in effect.statements:
        if not as_we_spell:
            values = _reencoded(values, texts, connection.info.encoding)
        if names is None or not prefix:
            steps.append((pgconn.send_query_params, (sql, values or None, None, formats or None, _BINARY), True, None))
            continue
        key = (sql, ())
        name = names.get(key)
        if name is None:
            name = prefix + b"%d" % next(_numbers)
            steps.append((pgconn.send_prepare, (name, sql), False, partial(names.__setitem__, key, name)))
        else:
            names.move_to_end(key)
        steps.append((pgconn.send_query_prepared, (name, values, formats, _BINARY), True, None))
    return steps


def _is_utf8(pgconn: Any) -> bool:
    """Whether our words are sent in UTF-8, as the store sends them, and not in the encoding of the client."""
    client = pgconn.parameter_status(b"client_encoding")
    return client in (_UTF8, _NO_ENCODING) or pgconn.parameter_status(b"server_encoding") == _NO_ENCODING


def would_garble_text(connection: Connection) -> bool:
    """Whether words would be kept as they are sent, in a database that is kept in another encoding than UTF-8."""
    status_of = connection.pgconn.parameter_status
    return status_of(b"client_encoding") == _NO_ENCODING and status_of(b"server_encoding") not in (_UTF8, _NO_ENCODING)


def _reencoded(values: Sequence[Value], texts: Sequence[int], encoding: str) -> list[Value]:
    """Binary text is in the client's encoding, as any other is."""
    respelt = list(values)
    for place in texts:
        text = values[place]
        respelt[place] = None if text is None else text.decode().encode(encoding)
    return respelt


def _sent_one_by_one(pgconn: Any, steps: Sequence[_Step]) -> Generator[Any, Any, list[Any]]:
    """Send each when the one before is answered. The results, up to the first that is an error."""
    results: list[Any] = []
    for step in steps:
        step[0](*step[1])
        results.append((yield from execute(pgconn))[-1])
        if results[-1].status not in _FINE:
            break
    return results


def _sent_together(pgconn: Any, steps: Sequence[_Step]) -> Generator[Any, Any, list[Any]]:
    """Send all at once. As many results as came before the connection was lost."""
    results: list[Any] = []
    is_busy, get_result, is_between = pgconn.is_busy, pgconn.get_result, False
    try:
        pgconn.enter_pipeline_mode()
        for step in steps:
            step[0](*step[1])
        pgconn.pipeline_sync()
        if pgconn.flush():
            yield from send(pgconn)
        while True:
            while is_busy():
                if (yield _READABLE):
                    pgconn.consume_input()
            result = get_result()
            if result is None:  # It separates the answers of two statements.
                if is_between:
                    return results  # There are no more.
                is_between = True
                continue
            if result.status == _SYNC:
                break
            is_between = False
            results.append(result)
        while (notified := pgconn.notifies()) is not None:
            if pgconn.notify_handler:
                pgconn.notify_handler(notified)
    except psycopg.DatabaseError:
        if all(result.status != ExecStatus.FATAL_ERROR for result in results):
            raise  # Else the server has said why, before it hung up.
    finally:
        _leave_pipeline(pgconn)  # And once more in `exchange`: this line may be the one that is interrupted.
    return results


def _leave_pipeline(pgconn: Any) -> None:
    """Out of pipeline mode. A connection with answers still on their way is of no use to anybody: close it."""
    if pgconn.status != _CONNECTED:
        return
    try:
        if pgconn.pipeline_status != _NO_PIPELINE:
            pgconn.exit_pipeline_mode()
    except psycopg.Error:
        pgconn.finish()
    else:
        if pgconn.transaction_status == _ACTIVE:
            pgconn.finish()


def _loader(connection: Connection, as_we_spell: bool) -> AnyTransformer:
    if not as_we_spell:
        return Transformer(DEFAULT_CONVERSION._replace(connection=connection))
    try:
        return _of_thread.loader
    except AttributeError:
        _of_thread.loader = Transformer(DEFAULT_CONVERSION)
        return _of_thread.loader
