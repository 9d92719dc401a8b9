"""Erasing a tenant: all of it and nobody else's, in batches, resumable, with a tombstone that names nobody."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import pytest
from access_support import World

from onceward import ConfigurationError, Gate, Retry
from onceward.errors import StoreForgot, TokenInvalid
from onceward.service.access import tenant_erasure, top_up_once
from onceward.stores import open_store
from servers.postgres import kinds

pytestmark = pytest.mark.dose(1, of=("kind", "colour"))

CANARY = "personal-data-of-a-customer"
TENANTS = ("acme", "acme2", "acme-eu", "ac", "other")


@pytest.fixture
def access(world: World, colour: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Five tenants whose names begin alike, with everything that a tenant can have."""
    monkeypatch.setattr(tenant_erasure, "PAGE", 7)
    with world.open() as filling:
        for name in TENANTS:
            filling.create_tenant(name, prepaid=True, quota_records=100)
            top_up_once(filling, world.url, name, 10, "invoice")
            filling.create_token(name)
            filling.charge(name, 1)
            fill(world, f"live:{name}")
        for scope in ("test:acme", f"live:acme:db:{CANARY}", "live:acme:token:abc"):
            fill(world, scope)
    opened = world.open(colour)
    yield opened
    opened.close()


def fill(world: World, scope: str) -> None:
    """A settled record, one in doubt, and a dead letter."""

    def fails() -> None:
        raise ConnectionRefusedError(CANARY)

    # These records need not survive a power cut, and a test need not wait for the disk.
    with Gate(world.url + ("?synchronous=normal" if world.kind == "sqlite" else ""), scope=scope) as gate:
        gate.run("done", lambda: f"{CANARY} of {scope}")
        with pytest.raises(ConnectionRefusedError):
            gate.run("doubted", fails)
        with pytest.raises(ConnectionRefusedError):
            Retry(1, dead=gate.dead_letters()).bind(key="given-up").call(fails)


def beside(world: World, scope: str) -> Gate:
    """A gate whose clock is that of whoever erases."""
    return Gate(open_store(world.url, environment=world.environment), scope=scope, environment=world.environment)


def owned(world: World) -> dict[str, list[int]]:
    """What each tenant has: records, tokens, reservations, top-ups, itself."""
    found: dict[str, list[int]] = {}
    scopes = [scope for (scope,) in world.rows("SELECT scope FROM onceward_records")]
    for name in TENANTS:
        mine = [scope for scope in scopes if f"{scope}:".split(":")[1] == name]
        tables = ("tokens", "reservations", "topups")
        counts = [world.rows(f"SELECT count(*) FROM onceward_{one} WHERE tenant = '{name}'")[0][0] for one in tables]
        found[name] = [len(mine), *counts, len(world.rows(f"SELECT 1 FROM onceward_tenants WHERE name = '{name}'"))]
    return found


def test_everything_of_one_tenant_goes_and_nothing_of_another(access: Any, world: World) -> None:
    """
    Records of every scope and state, dead letters, tokens, reservations, top-ups; not of a tenant whose name begins
    alike, nor of one whose name it begins with.
    """
    before = owned(world)
    assert {name: [13 if name == "acme" else 4, 1, 1, 1, 1] for name in TENANTS} == before

    steps = list(access.erase_tenant("acme"))

    assert {**before, "acme": [0, 0, 0, 0, 0]} == owned(world)
    assert (steps[-1].records, steps[-1].others) == (13, 3)
    assert len(steps) > 5  # In batches, each of them told.


@pytest.mark.parametrize("kind", ["sqlite"])
def test_the_check_itself(access: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An erasure that goes by how a name begins would be seen.
    """
    before = owned(world)
    monkeypatch.setattr(
        tenant_erasure, "tenant_of", lambda scope: "acme" if f"{scope}:".split(":")[1].startswith("acme") else None
    )

    list(access.erase_tenant("acme"))

    assert {**before, "acme": [0, 0, 0, 0, 0]} != owned(world)
    assert owned(world)["acme2"][0] == 0


def test_what_is_left_says_when_and_not_who(access: Any, world: World) -> None:
    """
    A keyed digest of the name, and two instants; the name is nowhere any more.
    """
    list(access.erase_tenant("acme"))

    [(digest, _, started, finished)] = world.rows(
        "SELECT digest, pepper, started_at, finished_at FROM onceward_erasures"
    )
    assert len(bytes(digest)) == 32
    assert started <= finished
    assert (started, finished) == access.tombstone("acme")
    assert None is access.tombstone("acme2")
    tables = ("tenants", "tokens", "reservations", "topups", "erasures", "records")
    assert [
        row for table in tables for row in world.rows(f"SELECT * FROM onceward_{table}") if "acme" in map(str, row)
    ] == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_tokens_end_before_anything_is_erased(access: Any, world: World) -> None:
    """
    And every process has noticed: a second passes before the first batch.
    """
    text = access.create_token("acme").issued.text
    access.authenticate(text)
    began = world.environment.monotonic()

    progress = access.erase_tenant("acme")
    next(progress)

    assert world.environment.monotonic() >= began + 1
    with pytest.raises(TokenInvalid):
        access.authenticate(text)
    assert None is access.create_token("acme")
    with pytest.raises(ConfigurationError):
        access.charge("acme", 1)
    progress.close()


def test_no_fence_is_given_out_again(access: Any, world: World) -> None:
    """
    The greatest fence that was erased is remembered, so that no holder of old is taken for one of today.
    """
    [(greatest,)] = world.rows("SELECT max(fence) FROM onceward_records WHERE scope LIKE '%:acme%'")
    world.rows("UPDATE onceward_records SET fence = fence + 1000000000000000")

    list(access.erase_tenant("acme"))

    [(floor,)] = world.rows("SELECT value FROM onceward_meta WHERE name = 'fence_floor'")
    assert floor >= greatest + 1000000000000000 - 10**9


@pytest.mark.fault("a-tenant-is-erased-without-a-mark")
@pytest.mark.parametrize("scope", ["live:acme", "live:acme:token:abc", "test:acme"])
def test_a_running_operation_does_not_bring_a_record_back(access: Any, world: World, scope: str) -> None:
    """
    Its claim is erased while its function runs: its answer is not stored, and its caller is told. Afterwards a tenant
    of that name works as ever.
    """
    heard: list[Any] = []

    def erased() -> str:
        list(access.erase_tenant("acme"))
        return CANARY

    with beside(world, scope) as gate:
        with contextlib.suppress(StoreForgot):
            heard.append(gate.run("running", erased))
        left = owned(world)["acme"]
        anew = [gate.run("running", lambda: "anew"), gate.run("running", lambda: "not again")]

    assert (heard, left) == ([], [0, 0, 0, 0, 0])
    assert anew == ["anew", "anew"]


def test_another_tenants_record_is_put_back_all_the_same(access: Any, world: World) -> None:
    """
    A mark is of one tenant: another, whose claim the store has forgotten meanwhile, is not kept from putting it back.
    """
    with beside(world, "live:acme2") as gate:

        def forgotten(operation: Any) -> str:
            list(access.erase_tenant("acme"))
            assert gate.store.erase([operation.id]) == 1
            return "kept"

        assert [gate.run("running", forgotten), gate.run("running", lambda: "again")] == ["kept", "kept"]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_again_does_no_harm(access: Any, world: World) -> None:
    """
    What came late is erased as well; a new tenant of that name begins with nothing.
    """
    list(access.erase_tenant("acme"))
    first = access.tombstone("acme")
    fill(world, "live:acme")

    assert list(access.erase_tenant("acme"))[-1].records == 3
    assert first.started_at == access.tombstone("acme").started_at
    assert access.create_tenant("acme", prepaid=True)
    assert (access.tenant("acme").balance, access.tenant("acme").tokens) == (0, 0)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_calls_under_way_made_behind_it_is_erased_too(access: Any, world: World) -> None:
    """
    It goes through the records until it finds nothing; but not for ever.
    """
    passes = 0
    for step in access.erase_tenant("acme"):
        if passes == 0 and step.records == 13:
            fill(world, "live:acme")  # Wherever their ids stand, some are behind.
            passes += 1

    assert (step.records, owned(world)["acme"][0]) == (16, 0)
    assert tenant_erasure.PASSES_MAX == 3


@pytest.mark.parametrize("kind", ["sqlite"])
def test_nobody_is_nobody(access: Any, world: World) -> None:
    """
    A name that never was: nothing happens, and there is no tombstone.
    """
    before = owned(world)

    assert list(access.erase_tenant("acm")) == []
    assert before == owned(world)
    assert world.rows("SELECT digest FROM onceward_erasures") == []


@pytest.mark.fault("a-name-is-judged-when-the-erasure-begins")
@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_is_no_name_is_refused_before_anything_is_iterated(access: Any) -> None:
    """
    In both colours: whoever asks for the erasure is told, and not whoever iterates.
    """
    with pytest.raises(ConfigurationError, match="a tenant's name"):
        access.erase_tenant("Not A Name")


KILLED = """
import sys
from onceward.runtime import failpoints
from onceward.service.access import Access
from onceward.service.access import tenant_erasure
tenant_erasure.PAGE = 7
access = Access.open(sys.argv[1])
failpoints.arm("access.erase.written", "kill", skip=int(sys.argv[2]))
list(access.erase_tenant("acme"))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", (0, 3)), *((one, (2,)) for one in kinds()[1:])])
def test_a_killed_erasure_goes_on_when_it_is_begun_again(access: Any, world: World, kills: tuple[int, ...]) -> None:
    """
    `kill -9` inside a batch, several times over: afterwards all of it is gone, and nothing else.
    """
    before = owned(world)

    for skip in kills:
        done = subprocess.run([sys.executable, "-c", KILLED, world.url, str(skip)], timeout=60, check=False)
        assert done.returncode == -9
        assert {**before, "acme": owned(world)["acme"]} == owned(world)
        assert owned(world)["acme"][-1]
    list(access.erase_tenant("acme"))

    assert {**before, "acme": [0, 0, 0, 0, 0]} == owned(world)
    assert access.tombstone("acme").finished_at is not None


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_is_erased_is_overwritten(access: Any, world: World) -> None:
    """
    Not only let go of: in no file and no log of SQLite's is a trace of the answers, or of the name.
    """
    for name in TENANTS[1:]:
        list(access.erase_tenant(name))
    before = traces(world)

    list(access.erase_tenant("acme"))

    assert before > 0
    assert traces(world) == 0


def traces(world: World) -> int:
    """How often the canary is on the disk."""
    return sum(file.read_bytes().count(CANARY.encode()) for file in world.folder.iterdir())
