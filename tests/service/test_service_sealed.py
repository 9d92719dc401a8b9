"""A service that seals what it stores: over a real socket, with the files under the eyes of a thief."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from service_support import Served

from onceward.cli import main
from onceward.errors import SealBroken, SealKeyMissing
from onceward.gate import SealContext, Sealed
from onceward.gate.sealed_store import SealedStore
from onceward.service.seal import open_tenant_seal
from onceward.service.settings import Settings, store_url_of
from onceward.stores import open_store
from servers import ending

pytestmark = pytest.mark.slow

SECRET = "4111-1111-1111-1111"
CHARGE = "INSERT INTO events VALUES (?, 'paid') RETURNING id, '4111-' || '1111-1111-1111' AS card"


def key_file(path: Path, *keys: str) -> Path:
    """A file of keys, put there whole."""
    made = path.with_name("keys.new")
    made.write_text("".join(f"{key}\n" for key in keys), encoding="ascii")
    made.chmod(0o600)
    made.rename(path)
    return path


def command(folder: Path, *words: str, exits: int = 0) -> Any:
    """What an operator types about a service's folder; the answer for programs."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*words, "--json", "--store", store_url_of(Settings(folder=str(folder)))])
    assert code == exits, err.getvalue()
    return json.loads(out.getvalue()) if out.getvalue() else None


@pytest.fixture
def sealed() -> Iterator[Served]:
    """A service of the test's own, whose keys are in a file `keys` in its folder."""
    folder = ending.folder("onceward-sealed-")
    key_file(folder / "keys", Sealed.new_key())
    service = Served.started(folder, "--seal-keys", str(folder / "keys"))
    try:
        yield service
    finally:
        service.stop()


def rows(served: Served, database: str) -> list[tuple[str, bytes]]:
    """The records of a tenant's database, as the file has them."""
    name = database.rpartition("/")[2]
    (path,) = (served.folder / "databases").glob(f"*/{name}.db")
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT codec, result FROM onceward_records WHERE codec IS NOT NULL ORDER BY id")
        return [(codec, bytes(result)) for codec, result in found]


def stolen(folder: Path) -> bytes:
    """Everything in the folder but the keys' own file, as a thief copies it."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "keys")


class TestAtRest:
    """Nothing that a thief of the files can read."""

    @pytest.mark.fault("sql-records-are-not-sealed")
    def test_an_answer_of_sql_is_sealed_and_replays_after_a_restart(self, sealed: Served) -> None:
        """
        The response has the card, the file has not, and the keys are in no process's environment or command line.
        """
        database = sealed.database()
        first = sealed.query(database, CHARGE, ["e-1"], key="charge-1")
        again = sealed.query(database, CHARGE, ["e-1"], key="charge-1")

        assert (first.status, SECRET in first.body.decode()) == (200, True)
        assert (again.body, again.headers["idempotency-replayed"]) == (first.body, "true")
        assert [codec for codec, _ in rows(sealed, database)] == ["sealed/1:json/1"]
        assert SECRET.encode() not in stolen(sealed.folder)
        assert _told_to_processes(sealed.process.pid, (sealed.folder / "keys").read_text().strip()) == []
        sealed.stop()
        restarted = sealed.again()
        try:
            assert restarted.query(database, CHARGE, ["e-1"], key="charge-1").body == first.body
            assert restarted.count(database) == 1
        finally:
            restarted.stop()

    def test_an_answer_of_the_ledger_is_sealed(self, sealed: Served) -> None:
        """
        And replays byte by byte.
        """
        delta = {"customerId": "cus_1", "delta": -5, "reason": "coffee", "referenceId": "r-1"}
        path, headers = "/api/v1/balance/delta", {"Idempotency-Key": "k-1"}
        first = sealed.call("POST", path, delta, headers=headers)
        again = sealed.call("POST", path, delta, headers=headers)

        assert (again.status, again.body) == (first.status, first.body)
        with closing(sqlite3.connect(sealed.folder / "records.ledger.db")) as connection:
            codecs = {codec for (codec,) in connection.execute("SELECT codec FROM onceward_records")}
        assert codecs == {"sealed/1:json/1"}

    def test_two_answers_swapped_are_an_error_and_nothing_runs(self, sealed: Served) -> None:
        """
        By hand, in the file of the tenant's database.
        """
        database = sealed.database()
        for number in (1, 2):
            sealed.query(database, CHARGE, [f"e-{number}"], key=f"charge-{number}")
        name = database.rpartition("/")[2]
        (path,) = (sealed.folder / "databases").glob(f"*/{name}.db")
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            found = connection.execute("SELECT id, result FROM onceward_records ORDER BY id").fetchall()
            for (id, _), (_, result) in zip(found, reversed(found), strict=True):
                connection.execute("UPDATE onceward_records SET result = ? WHERE id = ?", (result, id))
            connection.commit()

        for number in (1, 2):
            heard = sealed.query(database, CHARGE, [f"e-{number}"], key=f"charge-{number}")
            assert (heard.status, heard.headers.get("idempotency-replayed")) == (500, None)
        assert sealed.count(database) == 2

    def test_without_the_keys_a_retry_is_refused_and_nothing_runs(self, sealed: Served) -> None:
        """
        A service that was started without them: it can be tried again when they are there.
        """
        database = sealed.database()
        sealed.query(database, CHARGE, ["e-1"], key="charge-1")
        sealed.stop()
        bare = Served.started(sealed.folder)
        bare.token = sealed.token
        try:
            heard = bare.query(database, CHARGE, ["e-1"], key="charge-1")
            assert (heard.status, heard.code, heard.document["retry"]) == (503, "seal_key_missing", "same-key")
            assert bare.count(database) == 1
        finally:
            bare.stop()


class TestKeysChange:
    """New keys while the service runs."""

    def test_a_new_key_under_load_then_reseal_then_the_old_one_goes(self, sealed: Served) -> None:
        """
        No request fails meanwhile; afterwards everything opens without the old key.
        """
        database, keys = sealed.database(), sealed.folder / "keys"
        old, new = keys.read_text().strip(), Sealed.new_key()
        heard: list[tuple[int, int]] = []
        over = threading.Event()

        def work(worker: int) -> None:
            number = 0
            while not over.is_set():
                number += 1
                key = f"e-{worker}-{number}"
                heard.extend((sealed.query(database, CHARGE, [key], key=key).status, number) for _ in range(2))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
        for thread in threads:
            thread.start()
        first = _key_ids(sealed, database, until=1)
        key_file(keys, new, old)
        _key_ids(sealed, database, until=2)  # Somebody has sealed under a new key of the tenant's.
        over.set()
        for thread in threads:
            thread.join()

        assert {status for status, _ in heard} == {200}
        assert len(first) == 1
        told = command(sealed.folder, "store", "reseal", "--seal-keys", str(keys))
        assert (told["held"], told["unreadable"], told["resealed"] > 0) == (0, 0, True)
        assert command(sealed.folder, "store", "reseal", "--seal-keys", str(keys))["resealed"] == 0
        assert len(_key_ids(sealed, database)) == 1
        sealed.stop()
        key_file(keys, new)
        again = sealed.again()
        try:
            assert again.query(database, CHARGE, ["e-0-1"], key="e-0-1").headers["idempotency-replayed"] == "true"
        finally:
            again.stop()

    def test_sealing_is_switched_on_for_what_is_there(self) -> None:
        """
        Old answers replay; they are sealed by the command; then unsealed ones are refused.
        """
        folder = ending.folder("onceward-sealed-")
        plain = Served.started(folder)
        database = plain.database()
        first = plain.query(database, CHARGE, ["e-1"], key="charge-1")
        plain.stop()
        assert SECRET.encode() in stolen(folder)
        keys = key_file(folder / "keys", Sealed.new_key())
        service = Served.started(folder, "--seal-keys", str(keys))
        service.token = plain.token
        try:
            assert service.query(database, CHARGE, ["e-1"], key="charge-1").body == first.body
        finally:
            service.stop()
        command(folder, "store", "reseal", "--seal-keys", str(keys))
        strict = Served.started(folder, "--seal-keys", str(keys), "--sealed-only")
        strict.token = plain.token
        try:
            assert strict.query(database, CHARGE, ["e-1"], key="charge-1").body == first.body
            assert [codec for codec, _ in rows(strict, database)] == ["sealed/1:json/1"]
        finally:
            strict.stop()


class TestErasure:
    """A tenant's keys thrown away are an erasure."""

    @pytest.mark.fault("an-erased-tenant-keeps-its-keys")
    def test_a_backup_of_the_rows_cannot_be_read_after_the_tenant_is_erased(self, sealed: Served) -> None:
        """
        With the file of keys, and everything that is still there; another tenant's rows still open.
        """
        tokens = {name: sealed.new_token(name, role="admin") for name in ("gone", "kept")}
        delta = {"customerId": "cus_1", "delta": -5, "reason": "coffee", "referenceId": "r-1"}
        for token in tokens.values():
            sealed.call("POST", "/api/v1/balance/delta", delta, token=token, headers={"Idempotency-Key": "k-1"})
        backup = sealed.folder / "backup"
        backup.mkdir()
        ledger = sqlite3.connect(sealed.folder / "records.ledger.db")
        with closing(ledger), closing(sqlite3.connect(backup / "rows.db")) as copy:
            ledger.backup(copy)
        assert _readable(sealed.folder, backup) == {"test:gone", "test:kept"}

        command(sealed.folder, "tenant", "erase", "gone", "--yes", "gone")

        assert _readable(sealed.folder, backup) == {"test:kept"}
        assert b"gone" not in (sealed.folder / "records.seal.db").read_bytes()
        shutil.rmtree(backup)


class TestTenantSeal:
    """The keys of tenants, by themselves."""

    CONTEXT = SealContext("live:acme", b"i" * 32, "json/1", b"f", b"\x0117")

    def test_each_tenant_has_a_key_of_its_own(self, tmp_path: Path) -> None:
        """
        And what belongs to no tenant is under the file's own key.
        """
        master = Sealed(Sealed.new_key())
        with closing(open_tenant_seal(f"sqlite:///{tmp_path}/a.db", master, create=True)) as seal:
            ids = {seal.key_id_for(scope) for scope in ("live:acme", "test:acme", "live:acme:db:x", "live:other")}

            assert len(ids) == 2
            assert master.key_ids[0] not in ids
            assert seal.key_id_for("shop") == master.key_ids[0]
            made = seal.seal(b"paid", self.CONTEXT)
            with closing(open_tenant_seal(f"sqlite:///{tmp_path}/a.db", master, create=False)) as another:
                assert another.unseal(made, self.CONTEXT) == b"paid"
                with pytest.raises(SealKeyMissing):
                    another.unseal(made, self.CONTEXT._replace(scope="live:other"))

    @pytest.mark.fault("a-tenants-key-opens-in-anothers-row")
    def test_a_key_moved_to_another_tenant_does_not_open(self, tmp_path: Path) -> None:
        """
        Whoever writes to the table could otherwise read one tenant's rows with another's rights.
        """
        url, master = f"sqlite:///{tmp_path}/a.db", Sealed(Sealed.new_key())
        with closing(open_tenant_seal(url, master, create=True)) as seal:
            seal.key_id_for("live:acme")
        with closing(sqlite3.connect(tmp_path / "a.seal.db")) as connection:
            connection.execute("UPDATE onceward_seal_keys SET tenant = 'other'")
            connection.commit()
        told = ""
        with closing(open_tenant_seal(url, master, create=False)) as seal:
            try:
                seal.key_id_for("live:other")
            except SealBroken as error:
                told = str(error)

        assert "copied from another tenant" in told


def _key_ids(served: Served, database: str, until: int = 0) -> set[bytes]:
    """The ids of the keys that a database's records are sealed under, once there are so many."""
    while True:
        found = {result[6:22] for _, result in rows(served, database)}
        if len(found) >= until:
            return found


def _readable(folder: Path, backup: Path) -> set[str]:
    """The scopes of a backup's records that open with what the folder still has."""
    url = store_url_of(Settings(folder=str(folder)))
    with closing(open_tenant_seal(url, Sealed.from_file(folder / "keys"), create=False)) as seal:
        from onceward._core.sealing import Sealer, UnopenedValue
        from onceward._core.store_protocols import Selection

        with closing(SealedStore(open_store(f"sqlite:///{backup}/rows.db"), Sealer(seal))) as store:
            page = store.scan(b"", 100, Selection())
            return {one.scope for one in page if one.result and not isinstance(one.result, UnopenedValue)}


def _told_to_processes(parent: int, secret: str) -> list[str]:
    """Where a secret is in the command line or environment of a process or its children."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    children = [child for task in tasks for child in task.read_text().split()]
    places = [Path(f"/proc/{pid}/{what}") for pid in (str(parent), *children) for what in ("cmdline", "environ")]
    assert len(places) > 2, "there are workers"
    return [str(place) for place in places if secret.encode() in place.read_bytes()]
