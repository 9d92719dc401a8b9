"""
Where databases live: names that stay inside the folder, files for the owner alone, and what dropping leaves.
"""

from __future__ import annotations

import asyncio
import socket
import stat
from json import loads
from pathlib import Path
from typing import Any

import pytest

from colours import COLOURS
from onceward import ConfigurationError, StoreUnavailable
from onceward.service.sql import DatabaseUnknown, Limits, NameInvalid
from onceward.service.sql.database_files import DatabaseFolder, create_file, drop_file, file_identity
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.requests import build_request
from onceward.service.sql.tenant_database import ReadOnlyDatabase
from onceward.service.sql.worker import DatabaseWriter, OpenDatabases, WorkerSettings
from onceward.service.sql.worker_channel import (
    HEADER,
    NOT_BEGUN,
    TOGETHER_BYTES,
    FrameBuffer,
    ProgressPage,
    pack,
    pack_responses,
    packed,
    receive_frame,
    unpack_responses,
)
from onceward.service.sql.worker_link import WorkerLink

BAD_NAMES = [
    *("", ".", "..", "../x", "a/b", "a\\b", "/etc", "a.db", ".hidden", "-x", "_x", "A", "ÄÖ", "a b", "a\x00", "a\n"),
    *("x" * 64, "con", "nul", "com1", "a%2fb", "ſ", "a:b", "~", "$HOME", None, 7),
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """
    Nothing is mended: a name is good, or it is refused.
    """
    folder = DatabaseFolder(tmp_path)

    with pytest.raises(NameInvalid):
        folder.path(name, "shop")
    with pytest.raises(NameInvalid):
        folder.path("acme", name)


@pytest.mark.parametrize("name", ["a", "0", "shop-2", "a_b", "x" * 63])
def test_a_good_name_is_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    """
    One file per database, in a folder per namespace.
    """
    assert str(tmp_path / name / f"{name}.db") == DatabaseFolder(tmp_path).path(name, name)


def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    """
    Nobody else on the machine reads a tenant's data.
    """
    folder = DatabaseFolder(tmp_path / "databases")
    path = Path(folder.path("acme", "shop"))
    writer = DatabaseWriter(WorkerSettings(DEFAULT_LIMITS), {}, beat_of(tmp_path))
    writer.create(path)
    writer.group(path, [build_request(["CREATE TABLE t (a)"], DEFAULT_LIMITS)])
    modes = {
        one.name: stat.S_IMODE(one.stat().st_mode) for one in (folder.root, path.parent, *sorted(path.parent.iterdir()))
    }
    writer.databases.close_all()

    files = {"shop.db": 0o600, "shop.db-shm": 0o600, "shop.db-wal": 0o600}
    assert {"databases": 0o700, "acme": 0o700, **files} == modes


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """
    Neither in place of a database nor in place of a namespace.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    create_file(outside / "shop.db")
    folder = DatabaseFolder(tmp_path / "databases")
    (folder.root / "linked").symlink_to(outside)
    (folder.root / "acme").mkdir()
    (folder.root / "acme" / "shop.db").symlink_to(outside / "shop.db")

    for namespace in ("linked", "acme"):
        with pytest.raises(StoreUnavailable):
            file_identity(Path(folder.path(namespace, "shop")))


def test_only_databases_are_listed(tmp_path: Path) -> None:
    """
    Logs, dropped files and strangers are left out; names come in order.
    """
    folder = DatabaseFolder(tmp_path)
    for path in ("b/two.db", "b/one.db", "b/one.db-wal", "b/.one.db.dropped", "a/x.db", "a/Y.db", "Odd/x.db", "z.db"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()

    assert folder.databases() == [("a", "x"), ("b", "one"), ("b", "two")]
    assert folder.databases("b") == [("b", "one"), ("b", "two")]
    assert folder.databases("nobody") == []


def test_dropping_leaves_nothing_and_is_over_with_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    After a crash in the middle the database is gone, and one made anew under its name does not find the old log.
    """
    path = tmp_path / "acme" / "shop.db"
    create_file(path)
    log = path.with_name("shop.db-wal")
    log.write_bytes(b"old")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError("crash")))
    with pytest.raises(OSError, match="crash"):
        drop_file(path)
    monkeypatch.undo()
    gone = file_identity(path)
    create_file(path)

    assert gone is None
    assert not log.exists()
    assert drop_file(path)
    assert list(path.parent.iterdir()) == []
    assert not drop_file(path)


def beat_of(folder: Path) -> ProgressPage:
    """A page of shared memory."""
    with (folder / "page").open("w+b") as page:
        page.truncate(ProgressPage.SIZE)
        return ProgressPage(page.fileno())


def test_a_page_tells_how_far_a_worker_has_come(tmp_path: Path) -> None:
    """
    Which group, which request, and whether anything of it may have been committed.
    """
    beat = beat_of(tmp_path)
    beat.begin(7)
    beat.at(3)
    running = beat.seen()
    beat.committing()
    committing = beat.seen()
    beat.at(4)

    assert (running.group, running.committing, running.number) == (7, False, 3)
    assert (committing.group, committing.committing, committing.number) == (7, True, 0xFFFFFFFF)
    assert (beat.seen().committing, beat.seen().number) == (True, 4)
    assert running.steps < committing.steps < beat.seen().steps
    beat.begin(8)
    assert (*beat.seen()[:2], beat.seen().number) == (8, False, NOT_BEGUN)


def test_many_databases_do_not_need_many_open_files(tmp_path: Path) -> None:
    """
    A worker keeps a few open; the one not used for longest is closed for another.
    """
    limits = Limits(open_databases=4)
    writer = DatabaseWriter(WorkerSettings(limits), {}, beat_of(tmp_path))
    paths = [tmp_path / "many" / f"d{number}.db" for number in range(30)]
    for path in paths:
        writer.create(path)
    readers = OpenDatabases(limits, lambda path: ReadOnlyDatabase(path, limits))
    for path in paths:
        readers.get(path)
    files = [one for one in Path("/proc/self/fd").iterdir() if "/many/" in str(one.resolve())]
    kept = len(writer.databases), len(readers)
    writer.databases.close_all()
    readers.close_all()

    assert kept == (4, 4)
    assert len(files) <= 4 * 12


@pytest.mark.fault("sql-many-databases-close-everybodys")
def test_whoever_has_many_databases_open_closes_its_own(tmp_path: Path) -> None:
    """
    Thirty databases of one namespace: another's stays open, and a newcomer's is opened at the greedy one's cost.
    """
    opened: list[str] = []

    class Opened:
        def __init__(self, path: Path) -> None:
            self.path = path
            opened.append(path.stem)

        def close(self) -> None:
            opened.remove(self.path.stem)

    databases: OpenDatabases[Any] = OpenDatabases(Limits(open_databases=4), Opened)
    paths = [tmp_path / "greedy" / f"d{number}.db" for number in range(30)]
    modest, late = tmp_path / "modest" / "shop.db", tmp_path / "late" / "blog.db"
    for path in (*paths, modest, late):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    databases.get(modest)
    for path in paths:
        databases.get(path)
    many = list(opened)
    databases.get(late)

    assert many == ["shop", "d27", "d28", "d29"]
    assert opened == ["shop", "d28", "d29", "blog"]


def test_a_database_that_was_replaced_is_opened_anew(tmp_path: Path) -> None:
    """
    A reader that has it open notices that it was dropped, and made again.
    """
    path = tmp_path / "acme" / "shop.db"
    writer = DatabaseWriter(WorkerSettings(DEFAULT_LIMITS), {}, beat_of(tmp_path))
    readers = OpenDatabases(DEFAULT_LIMITS, lambda path: ReadOnlyDatabase(path, DEFAULT_LIMITS))
    writer.create(path)
    writer.group(path, [build_request(["CREATE TABLE old (a)"], DEFAULT_LIMITS)])
    before = [
        table for (table,) in readers.get(path).connection.execute("SELECT name FROM sqlite_schema WHERE name = 'old'")
    ]
    writer.drop(path)
    with pytest.raises(DatabaseUnknown):
        readers.get(path)
    writer.create(path)
    after = readers.get(path).connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'old'").fetchone()
    writer.databases.close_all()
    readers.close_all()

    assert (before, after) == (["old"], (0,))


def test_limits_that_cannot_be_meant_are_refused() -> None:
    """
    Zero, below zero, not a number, or an answer that could never be kept.
    """
    for wrong in ({"columns": 0}, {"statement_seconds": -1}, {"parameters": True}, {"answer_bytes": 999_999}):
        with pytest.raises(ConfigurationError):
            Limits(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        Limits(statement_seconds=float("nan"))


def test_a_frame_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Both sides refuse what is larger.
    """
    monkeypatch.setattr("onceward.service.sql.worker_channel.FRAME_MAX", 10)

    assert pack({}) == b"\x00\x00\x00\x02{}"
    with pytest.raises(StoreUnavailable):
        packed("x" * 11)


def received(colour: str, *pieces: bytes) -> Any:
    """What the side that blocks, or the one that awaits, makes of these bytes and the end of the line."""
    ours, theirs = socket.socketpair()
    if colour == "blocking":
        with ours:
            with theirs:
                for piece in pieces:
                    theirs.sendall(piece)
            return receive_frame(ours, FrameBuffer())

    async def awaited() -> Any:
        found: list[bytes] = []

        def take(frame: bytes) -> bool:
            found.append(frame)
            return True

        link = await WorkerLink.connect(ours)
        with theirs:
            asked = asyncio.create_task(link.ask(b"?", take))
            await asyncio.sleep(0)
            assert theirs.recv(10) == b"?"
            for piece in pieces:
                theirs.sendall(piece)
                await asyncio.sleep(0)
        try:
            await asked
        finally:
            await link.close()
        return loads(found[0])

    return asyncio.run(awaited())


@pytest.mark.fault("a-frame-of-any-length-is-taken")
@pytest.mark.parametrize("colour", COLOURS)
def test_a_frame_is_read_whole_or_the_other_side_is_gone(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The same for the worker, which blocks, and for the engine, which awaits: broken off anywhere, or too long.
    """
    monkeypatch.setattr("onceward.service.sql.worker_channel.FRAME_MAX", 16)
    frame = pack({"ready": 7})
    too_long = HEADER.pack(17) + b'{"ready":7777777}'

    assert received(colour, frame) == {"ready": 7}
    assert received(colour, *(frame[place : place + 1] for place in range(len(frame)))) == {"ready": 7}
    for broken in (b"", frame[:2], frame[:4], frame[:-1], too_long):
        with pytest.raises(EOFError):
            received(colour, broken)


def test_frames_in_pieces_are_put_together() -> None:
    """
    Several at once are told apart, and what is missing of the next one is known.
    """
    frames, sent = FrameBuffer(), pack(["x" * 100]) + pack([2]) + pack([3])
    found = []
    for place in range(0, len(sent), 7):
        frames.feed(sent[place : place + 7])
        while (frame := frames.take()) is not None:
            found.append(loads(frame))

    assert found == [["x" * 100], [2], [3]]
    assert frames.missing == HEADER.size


@pytest.mark.fault("a-worker-that-speaks-unasked-is-listened-to")
def test_a_worker_that_says_more_than_it_was_asked_is_not_in_its_right_mind() -> None:
    """
    What it said would be taken for the response to the next group. Whoever asks then is told that it is gone.
    """

    async def asked_twice() -> tuple[list[bytes], type]:
        ours, theirs = socket.socketpair()
        link, found = await WorkerLink.connect(ours), list[bytes]()

        def take(frame: bytes) -> bool:
            found.append(frame)
            return True

        with theirs:
            asked = asyncio.create_task(link.ask(pack(1), take))
            await asyncio.sleep(0)
            theirs.sendall(pack(2) + pack(3))
            await asked
            second = asyncio.create_task(link.ask(pack(4), take))
            await asyncio.wait([second], timeout=5)
            second.cancel()
            [ended] = await asyncio.gather(second, return_exceptions=True)
        await link.close()
        return found, type(ended)

    assert asyncio.run(asked_twice()) == ([b"2"], EOFError)


@pytest.mark.parametrize("ends", ["refused", "failed", "cancelled"])
def test_whoever_waits_for_a_worker_hears_of_it(ends: str) -> None:
    """
    What is wrong with a frame, what a watcher found, or that the engine closes; afterwards the link is of no use.
    """
    expected = {"refused": ValueError, "failed": TimeoutError, "cancelled": asyncio.CancelledError}[ends]

    async def asked() -> bool:
        ours, theirs = socket.socketpair()
        link = await WorkerLink.connect(ours)

        def take(_: bytes) -> bool:
            raise ValueError

        with theirs:
            waiting = asyncio.create_task(link.ask(pack(1), take))
            await asyncio.sleep(0)
            match ends:
                case "failed":
                    link.fail(TimeoutError())
                case "cancelled":
                    waiting.cancel()
            if ends == "refused":
                theirs.sendall(pack(2))
            with pytest.raises(expected):
                await waiting
            await link.close()
            return theirs.recv(100) == pack(1) and theirs.recv(100) == b""

    assert asyncio.run(asked())


@pytest.mark.fault("a-workers-lengths-are-believed")
def test_responses_come_together_and_are_as_long_as_they_say() -> None:
    """
    Many small ones in one frame, large ones in frames of their own; the text of each is its own, byte for byte.
    """
    texts = [b"{}", b"", b"x" * TOGETHER_BYTES, b"[1]", b"[2]"]
    heads = [{"cpu": 0.5, "bytes": len(text)} for text in texts]
    frames = pack_responses(heads, texts)
    found = [unpack_responses(frame[HEADER.size :]) for frame in frames]

    assert [[one["text"] for one in some] for some in found] == [texts[:3], texts[3:]]
    assert [HEADER.unpack(frame[: HEADER.size])[0] for frame in frames] == [len(one) - HEADER.size for one in frames]
    for wrong in (frames[1][HEADER.size :] + b"x", frames[1][HEADER.size : -1]):
        with pytest.raises(ValueError, match="as long as it says"):
            unpack_responses(wrong)
