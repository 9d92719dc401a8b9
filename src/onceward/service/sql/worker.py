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
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from onceward._core.errors import OncewardError, OutcomeUnknown, StoreUnavailable
from onceward.gate.seal_keys import import_ciphers
from onceward.protocol.errors import DatabaseUnknown
from onceward.service.sql.database_files import create_file, drop_file, file_identity
from onceward.service.sql.frame_reader import read_frame
from onceward.service.sql.limits import Limits
from onceward.service.sql.requests import SqlRequest
from onceward.service.sql.schema_inspector import read_tables
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS, translate_sqlite_error
from onceward.service.sql.tenant_database import ReadOnlyDatabase, RequestOutcome, WritableDatabase
from onceward.service.sql.worker_channel import ProgressPage, SocketStream, pack
from onceward.service.sql.worker_errors import to_wire

Open = TypeVar("Open", bound=WritableDatabase | ReadOnlyDatabase)

FILES_PER_DATABASE = 12
"""Two connections and a reader, each with the file, its log and its shared memory; and some to spare."""
FILES_BESIDES = 64
PROCESSOR_SECONDS_BESIDES = 30
"""For starting, opening and committing, on top of what the statements of a group may take."""


class OpenDatabases(Generic[Open]):
    """The databases that are open, at most so many: the one not used for longest is closed for another."""

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
            self.close(next(iter(self._open)))
        try:
            database = self._opener(path)
        except DRIVER_ERRORS as error:
            raise translate_sqlite_error(error) from error
        self._open[path] = database, file
        return database

    def close(self, path: Path) -> None:
        """Close one, if it is open."""
        opened = self._open.pop(path, None)
        if opened is not None:
            opened[0].close()

    def close_all(self) -> None:
        """Close all of them."""
        for path in list(self._open):
            self.close(path)


class DatabaseWriter:
    """The one writer of the databases that fall to it."""

    def __init__(self, limits: Limits, options: dict[str, Any], progress: ProgressPage) -> None:
        self.databases = OpenDatabases(limits, lambda path: WritableDatabase(path, limits, options, watcher=progress))

    def group(self, path: Path, requests: list[SqlRequest], seal: dict[str, Any] | None = None) -> list[RequestOutcome]:
        """Run a group of requests, whose records are sealed under these keys."""
        database = self.databases.get(path)
        if seal is not None:
            database.seal_with(seal["keys"], sealed_only=seal["only"])
        outcomes = database.group(requests)
        if any(isinstance(outcome, StoreUnavailable | OutcomeUnknown) for outcome in outcomes):
            self.databases.close(path)  # The disk failed: what a connection remembers of it is no longer certain.
        return outcomes

    def create(self, path: Path) -> bool:
        """Make a database; whether it is new."""
        if file_identity(path) is not None:
            return False
        self.databases.close(path)
        create_file(path)
        self.databases.get(path)
        return True

    def drop(self, path: Path) -> bool:
        """Delete a database with its records; whether there was one."""
        self.databases.close(path)
        return drop_file(path)


class DatabaseReader:
    """One of the readers, for all databases."""

    def __init__(self, limits: Limits, progress: ProgressPage) -> None:
        self.databases = OpenDatabases(limits, lambda path: ReadOnlyDatabase(path, limits))
        self._progress = progress

    def group(self, path: Path, requests: list[SqlRequest], seal: dict[str, Any] | None = None) -> list[RequestOutcome]:
        """Run requests one after the other. No record is read, so nothing is opened."""
        database = self.databases.get(path)
        outcomes = []
        for number, request in enumerate(requests):
            self._progress.at(number)
            outcomes.append(database.perform(request))
        return outcomes

    def tables(self, path: Path) -> list[Any]:
        """What is in a database."""
        return self.databases.get(path).session.look(read_tables)


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
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Writing past the limit is an error then, and not the end.
    connection = sqlite3.connect(":memory:")
    connection.execute(f"PRAGMA soft_heap_limit = {limits.memory_bytes * 3 // 4}")
    connection.execute(f"PRAGMA hard_heap_limit = {limits.memory_bytes}")
    connection.close()


def extend_cpu_limit(limits: Limits, requests: int) -> None:
    """Allow for what the next group may take. Past that the kernel ends the process, even if nobody watches it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime + 2 * limits.statement_seconds * requests + PROCESSOR_SECONDS_BESIDES
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))


def serve(link: socket.socket, progress: ProgressPage) -> None:
    """Do what the engine asks, until it is gone."""
    stream = SocketStream(link)
    settings = read_frame(stream)
    limits = Limits(**settings["limits"])
    if settings.get("sealed"):
        import_ciphers()  # Before the limits: it is a library of some size.
    apply_limits(limits)
    worker: DatabaseWriter | DatabaseReader = (
        DatabaseWriter(limits, settings["options"], progress)
        if settings["role"] == "writer"
        else DatabaseReader(limits, progress)
    )
    link.sendall(pack({"ready": os.getpid()}))
    with suppress(EOFError):
        while True:
            order = read_frame(stream)
            requests = [SqlRequest.from_document(one) for one in order.get("requests", ())]
            extend_cpu_limit(limits, len(requests))
            progress.begin(order["group"])
            link.sendall(b"".join(_response_frames(worker, order, requests)))
    worker.databases.close_all()


def _response_frames(
    worker: DatabaseWriter | DatabaseReader, order: dict[str, Any], requests: list[SqlRequest]
) -> list[bytes]:
    """The frames to send back: one per request, or one for anything else."""
    path = Path(order["path"])
    try:
        if requests:
            outcomes = worker.group(path, requests, order.get("seal"))
            return [pack(_response(outcome)) for outcome in outcomes]
        return [pack({"value": getattr(worker, order["what"])(path)})]
    except OncewardError as error:
        failure = error
    except OSError as error:
        failure = StoreUnavailable(f"the database's file could not be read or written: {error.strerror}")
    return [pack({"error": to_wire(failure)})] * max(len(requests), 1)


def _response(outcome: RequestOutcome) -> dict[str, Any]:
    if isinstance(outcome, OncewardError):
        return {"error": to_wire(outcome)}
    return {"value": outcome.document, "replayed": outcome.replayed}


def main(arguments: list[str]) -> None:
    """Serve the engine at the other end of the socket whose number is given."""
    link, page = int(arguments[0]), int(arguments[1])
    with suppress(ConnectionError, EOFError):  # The engine is gone. What was committed will be found by the next one.
        serve(socket.socket(fileno=link), ProgressPage(page))


if __name__ == "__main__":
    main(sys.argv[1:])
