"""Nothing but bytes is handed to what packs commands: hiredis crashes if a signal strikes while it spells a number."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from redis_support import SCOPE, opened

from onceward import AsyncGate, Gate
from onceward.stores import _redis_packer as packing
from onceward.stores import _redis_upkeep as upkeep
from onceward.stores._redis_packed_rows import PackedRows
from onceward.stores._redis_schema import LATEST
from onceward.stores._upkeep import SchemaMigration
from onceward.testing.store_suite.rows import row, settled
from servers.redis import needed, running

needed()

Handed = list[tuple[Any, ...]]


@pytest.fixture(params=["hiredis", "without"])
def handed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Handed]:
    """The words of every command that is packed from now on, as they are handed over."""
    seen: Handed = []
    real, spelt = packing.hiredis_pack, packing.encode_args

    def noting(words: tuple[bytes, ...]) -> bytes:
        seen.append(tuple(words))
        assert real is not None
        return real(words)

    def noting_spelt(args: Any) -> tuple[bytes, ...]:
        words = spelt(args)
        seen.append(words)
        return words

    if request.param == "hiredis":
        monkeypatch.setattr(packing, "hiredis_pack", noting)
    else:
        monkeypatch.setattr(packing, "hiredis_pack", None)
        monkeypatch.setattr(packing, "encode_args", noting_spelt)
    yield seen


def kinds(handed: Handed) -> set[type]:
    """The types of all the words."""
    return {type(word) for words in handed for word in words}


def every_call(url: str) -> None:
    """Whatever a store and its upkeep send."""
    with opened(url) as store:
        held = store.put(row(SCOPE, "packed", family=b"f" * 32), None).record
        assert held is not None
        store.put(settled(held), held.version)
        store.put(row(SCOPE, "packed"), None)
        store.load(held.id)
        store.extend(b"f" * 32, 1_000_000, 2_000_000)
        store.scan(b"", 10, upkeep.Selection())
        store.purge(10)
    with Gate(url, scope=f"{SCOPE}-gate") as gate:
        gate.run("k", lambda: 1)
    upkeep.init(url)
    assert SchemaMigration(LATEST, LATEST, ()) == upkeep.planned(url)
    upkeep.check(url)


@pytest.mark.fault("numbers-are-handed-to-hiredis")
def test_a_server_is_sent_bytes_only(handed: Handed) -> None:
    """
    Connecting (to a database that has a number), putting, reading, purging and looking it over.
    """
    every_call(running().url(durability="volatile").replace("/0?", "/1?"))

    assert {bytes} == kinds(handed)
    assert (b"SELECT", b"1") in handed
    assert {b"EVALSHA", b"ZRANGEBYLEX", b"INFO"} <= {words[0] for words in handed}


@pytest.mark.fault("numbers-are-handed-to-hiredis")
def test_an_awaiting_store_sends_bytes_only(handed: Handed) -> None:
    """
    Many callers at once share a round trip, and nothing else changes.
    """

    async def crowd() -> None:
        async with AsyncGate(running().url(), scope=f"{SCOPE}-awaiting") as gate:
            await asyncio.gather(*(gate.run(f"k{number}", _one) for number in range(10)))

    asyncio.run(crowd())

    assert {bytes} == kinds(handed)


async def _one() -> int:
    return 1


WRITES = [row(SCOPE), row(SCOPE, family=b"f" * 32, holder=b"h", error=b"{}", codec="json/1")]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("expect", [None, b"v" * 16])
def test_the_bytes_are_the_same_however_they_are_packed(
    write: Any, expect: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A put is spelt by hand, for speed: as hiredis, and as nobody, would spell its words.
    """
    [command] = PackedRows("onceward", 16).put(write, expect)
    assert isinstance(command.args, bytes)
    reader = hiredis.Reader()
    reader.feed(command.args)
    words = reader.gets()
    quick = packing.pack_args(words)
    monkeypatch.setattr(packing, "hiredis_pack", None)

    assert quick == packing.pack_args(words) == packing.pack_args(command.args)
    assert quick.startswith(b"*%d\r\n$7\r\nEVALSHA\r\n" % len(words))
    assert [packing.pack_args(("CLIENT", "SETNAME", 7))] == packing.CommandPacker().pack("CLIENT SETNAME", 7)
