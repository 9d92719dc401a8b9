"""
A process that runs tenants' SQL: `python -m onceward.service.sql.worker LINK PAGE`, started by an engine.

It has one thread, one thing to do at a time, and limits of its own: memory, address space, processor time, files, the
size of a file. It dies when the engine is gone, or when the engine kills it. What was not committed then never was.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import socket
import sqlite3
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from onceward._core.errors import ConfigurationError, OncewardError, OutcomeUnknown, StoreUnavailable
from onceward.gate.seal_keys import import_ciphers
from onceward.protocol.errors import DatabaseUnknown, SqlError, SqlKind
from onceward.runtime.environment import REAL
from onceward.runtime.garbage import look_for_garbage_rarely
from onceward.runtime.process_limits import lower_priority
from onceward.service.sql.database_files import NEW_DATABASE_BYTES, create_file, drop_file, file_identity
from onceward.service.sql.limits import Limits
from onceward.service.sql.request_meter import RequestMeter
from onceward.service.sql.requests import SqlRequest
from onceward.service.sql.schema_inspector import read_tables
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS, translate_sqlite_error
from onceward.service.sql.statement_timer import StatementTimer
from onceward.service.sql.tenant_database import (
    GroupObserver,
    ReadOnlyDatabase,
    RequestOutcome,
    RequestResult,
    WritableDatabase,
)
from onceward.service.sql.worker_channel import FrameBuffer, ProgressPage, pack, pack_responses, receive_frame
from onceward.service.sql.worker_errors import NotRun, SliceUsed, to_wire
from onceward.service.sql.worker_sandbox import enter_sandbox

Open = TypeVar("Open", bound=WritableDatabase | ReadOnlyDatabase)

FILES_PER_DATABASE = 12
"""Two connections and a reader, each with the file, its log and its shared memory; and some to spare."""
FILES_BESIDES = 64
PROCESSOR_SECONDS_BESIDES = 30
"""For starting, opening and committing, on top of what the statements of a group may take."""


class OpenDatabases(Generic[Open]):
    """
    The databases that are open, at most so many.

    Another one is opened at the cost of the namespace that has most of them open: its database that was not used for
    longest is closed. So nobody's are closed because somebody else has many.
    """

    def __init__(self, limits: Limits, opener: Callable[[Path], Open]) -> None:
        self._limits = limits
        self._opener = opener
        self._open: OrderedDict[Path, tuple[Open, tuple[int, int]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: Path) -> Open:
        """The database at a path, opened if it is not. A file that was replaced is another one."""
        file = file_identity(path)
        opened = self._open.get(path)
        if opened is not None and opened[1] == file:
            self._open.move_to_end(path)
            return opened[0]
        self.close(path)
        if file is None:
            raise DatabaseUnknown
        while len(self._open) >= self._limits.open_databases:
            self.close(self._least_needed(path.parent))
        try:
            database = self._opener(path)
        except DRIVER_ERRORS as error:
            raise translate_sqlite_error(error) from error
        self._open[path] = database, file
        return database

    def _least_needed(self, asking: Path) -> Path:
        counts = Counter(path.parent for path in self._open)
        most = max(counts.values())
        greedy = asking if counts[asking] == most else next(folder for folder in counts if counts[folder] == most)
        return next(path for path in self._open if path.parent == greedy)

    def close(self, path: Path) -> None:
        """Close one, if it is open."""
        opened = self._open.pop(path, None)
        if opened is not None:
            opened[0].close()

    def close_all(self) -> None:
        """Close all of them."""
        for path in list(self._open):
            self.close(path)


class WorkerSettings(NamedTuple):
    """What every database of this process is opened with."""

    limits: Limits
    timed: Mapping[str, Any] = MappingProxyType({})
    """How its statements are timed: keywords of `WritableDatabase` and `ReadOnlyDatabase`."""


class DatabaseWriter:
    """The one writer of the databases that fall to it."""

    def __init__(self, settings: WorkerSettings, options: dict[str, Any], meter: GroupObserver) -> None:
        limits, timed = settings.limits, settings.timed
        self.databases = OpenDatabases(
            limits, lambda path: WritableDatabase(path, limits, options, watcher=meter, **timed)
        )

    def group(self, path: Path, requests: list[SqlRequest], seal: dict[str, Any] | None = None) -> list[RequestOutcome]:
        """Run a group of requests, whose records are sealed under these keys."""
        database = self.databases.get(path)
        if seal is not None:
            database.seal_with(seal["keys"], sealed_only=seal["only"])
        outcomes = database.group(requests)
        if any(isinstance(outcome, StoreUnavailable | OutcomeUnknown) for outcome in outcomes):
            self.databases.close(path)  # The disk failed: what a connection remembers of it is no longer certain.
        return outcomes

    def create(self, path: Path, growth: int | None = None) -> bool:
        """Make a database; whether it is new. One that is larger when empty than it may be is not made."""
        if file_identity(path) is not None:
            return False
        if growth is not None and growth < NEW_DATABASE_BYTES:
            raise SqlError(
                SqlKind.FULL,
                f"the quota is used up: a new database needs {NEW_DATABASE_BYTES} bytes, and {growth} are left",
                hint="drop a database, delete rows, or ask for a higher quota",
            )
        self.databases.close(path)
        create_file(path)
        self.databases.get(path)
        return True

    def drop(self, path: Path, _growth: int | None = None) -> bool:
        """Delete a database with its records; whether there was one."""
        self.databases.close(path)
        return drop_file(path)


class DatabaseReader:
    """One of the readers, for all databases."""

    def __init__(self, settings: WorkerSettings, meter: GroupObserver) -> None:
        limits, timed = settings.limits, settings.timed
        self.databases = OpenDatabases(limits, lambda path: ReadOnlyDatabase(path, limits, **timed))
        self._meter = meter
        self._clock = timed["timer"].clock
        self._group_seconds = limits.slice_seconds if timed["quick"] else math.inf

    def group(self, path: Path, requests: list[SqlRequest], seal: dict[str, Any] | None = None) -> list[RequestOutcome]:
        """
        Run requests one after the other. No record is read, so nothing is opened.

        A group has its time, like a request: when that is over, or a request has used up its slice, the others are
        `NotRun`, and have their turn later.
        """
        database = self.databases.get(path)
        outcomes: list[RequestOutcome] = []
        until = self._clock() + self._group_seconds
        for number, request in enumerate(requests):
            if outcomes and (self._clock() > until or isinstance(outcomes[-1], SliceUsed | NotRun)):
                outcomes.append(NotRun())
                continue
            self._meter.at(number)
            outcomes.append(database.perform(request))
        self._meter.group_ended()
        return outcomes

    def ping(self, _path: Path, _growth: int | None = None) -> bool:
        """Nothing to do: the worker is there."""
        return True

    def tables(self, path: Path, _growth: int | None = None) -> list[Any]:
        """What is in a database."""
        return self.databases.get(path).session.look(read_tables)


Workers: TypeAlias = dict[str, DatabaseWriter | DatabaseReader]
"""By what they do: `write`, `read`."""


def apply_limits(limits: Limits) -> None:
    """Put the process under its limits, for good."""
    files = limits.open_databases * FILES_PER_DATABASE + FILES_BESIDES
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_FSIZE, 2 * limits.database_bytes + (64 << 20)),
        (resource.RLIMIT_AS, limits.address_bytes),
    ):
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
    extend_cpu_limit(limits, REAL.process_cpu_seconds())
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Writing past the limit is an error then, and not the end.
    connection = sqlite3.connect(":memory:")
    connection.execute(f"PRAGMA soft_heap_limit = {limits.memory_bytes * 3 // 4}")
    connection.execute(f"PRAGMA hard_heap_limit = {limits.memory_bytes}")
    connection.close()


def extend_cpu_limit(limits: Limits, used: float, now: int = 0) -> int:
    """
    Allow for what the next group may take, if that is not the limit `now`; the limit then.

    Past it the kernel ends the process, even if nobody watches it.
    """
    soft = math.ceil(used + 2 * limits.statement_seconds + PROCESSOR_SECONDS_BESIDES)
    if soft == now:
        return now
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))
    return soft


def serve(link: socket.socket, page: int) -> None:
    """Do what the engine asks, until it is gone."""
    frames = FrameBuffer()
    told = receive_frame(link, frames)
    limits = Limits(**told["limits"])
    if told.get("sealed"):
        import_ciphers()  # Before the limits: it is a library of some size.
    apply_limits(limits)
    slow = told["role"] == "slow"
    if slow:
        lower_priority()
    try:
        sandbox = enter_sandbox(told.get("sandbox"))  # Before the first thread: another one would not be held in.
    except ConfigurationError as error:
        link.sendall(pack({"error": to_wire(error)}))
        return
    timer = StatementTimer(REAL)
    settings = WorkerSettings(limits, {"timer": timer, "quick": not slow})
    meter = RequestMeter(ProgressPage(page, REAL.process_cpu_seconds), timer.clock)
    workers: Workers = {}
    if told["role"] in ("writer", "slow"):
        workers["write"] = DatabaseWriter(settings, told["options"], meter)
    if told["role"] in ("reader", "slow"):
        workers["read"] = DatabaseReader(settings, meter)
    look_for_garbage_rarely()
    cpu_limit = 0

    @lru_cache(limits.open_databases)
    def path_of(sent: str) -> Path:
        return Path(sandbox.inside(sent))

    link.sendall(pack({"ready": os.getpid(), "sandbox": sandbox.report}))
    with suppress(EOFError):
        while True:
            order = receive_frame(link, frames)
            requests = [SqlRequest.from_document(one) for one in order.get("requests", ())]
            cpu_limit = extend_cpu_limit(limits, REAL.process_cpu_seconds(), cpu_limit)
            meter.begin(order["group"], max(len(requests), 1))
            worker, path = workers[order["mode"]], path_of(order["path"])
            link.sendall(b"".join(_response_frames(worker, path, order, requests, meter)))
    for worker in workers.values():
        worker.databases.close_all()


def _response_frames(
    worker: DatabaseWriter | DatabaseReader,
    path: Path,
    order: dict[str, Any],
    requests: list[SqlRequest],
    meter: RequestMeter,
) -> list[bytes]:
    """The frames to send back: a response for each request, or one for anything else; each with what it has cost."""
    try:
        if requests:
            outcomes: list[RequestOutcome] = worker.group(path, requests, order.get("seal"))
            responses = [_response(outcome) for outcome in outcomes]
        else:
            outcomes = []
            responses = [{"value": getattr(worker, order["what"])(path, order["growth"])}]
    except OncewardError as error:
        outcomes, responses = [], [_response(error)] * max(len(requests), 1)
    except OSError as error:
        failure = StoreUnavailable(f"the database's file could not be read or written: {error.strerror}")
        outcomes, responses = [], [_response(failure)] * max(len(requests), 1)
    texts = [one.text if isinstance(one, RequestResult) else b"" for one in outcomes] or [b""] * len(responses)
    heads = [{**response, "cpu": cpu} for response, cpu in zip(responses, meter.costs(), strict=True)]
    return pack_responses(heads, texts)


def _response(outcome: RequestOutcome) -> dict[str, Any]:
    match outcome:
        case SliceUsed():
            return {"again": "slow"}
        case NotRun():
            return {"again": "here"}
        case OncewardError():
            return {"error": to_wire(outcome)}
        case RequestResult(text, replayed, grown):
            return {"replayed": replayed, "grown": grown, "bytes": len(text)}


def main(arguments: list[str]) -> None:
    """Serve the engine at the other end of the socket whose number is given."""
    link, page = int(arguments[0]), int(arguments[1])
    with suppress(ConnectionError, EOFError):  # The engine is gone. What was committed will be found by the next one.
        serve(socket.socket(fileno=link), page)


if __name__ == "__main__":
    main(sys.argv[1:])
