"""What a tenant may hold, read and leave behind: over a real socket, with the commands that operators use."""

from __future__ import annotations

import io
import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from service_support import INSERT, TABLE, Heard, Served

from onceward.cli import main
from onceward.messaging.inbox import Inbox, Source
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.webhooks import StandardWebhooks
from onceward.service.access import Access
from onceward.service.settings import Settings, store_url_of
from onceward.service.sql.database_files import namespace_of
from onceward.service.sql.database_usage import measure_usage

pytestmark = pytest.mark.slow

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ROW = ["e-1", "click"]
WRITES = [
    (INSERT, ROW),
    ("INSERT INTO events VALUES ('e-2', 'x') RETURNING id", None),
    ("WITH one AS (SELECT 'e-3') INSERT INTO events SELECT *, 'x' FROM one", None),
    ("UPDATE events SET name = 'y'", None),
    ("CREATE TABLE more (id)", None),
    ("PRAGMA user_version = 7", None),
    ("pragma /* really */ main . application_id(9)", None),
]


def typed(*words: str) -> tuple[int, str, str]:
    """What an operator types: the exit code, and what is told."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*words, "--json"])
    return code, out.getvalue(), err.getvalue()


def command(folder: Path, *words: str) -> Any:
    """What an operator types about a service's folder; the answer for programs."""
    code, out, err = typed(*words, "--store", store_url_of(Settings(folder=str(folder))))
    if code:
        raise RuntimeError(err)
    return json.loads(out)


def count_again(folder: Path) -> None:
    """Count now what tenants hold, as a service does once a minute."""
    url, databases = store_url_of(Settings(folder=str(folder))), folder / "databases"
    with Access.open(url, elsewhere=partial(measure_usage, databases)) as access:
        for _ in range(100):  # A service that is just counting goes first.
            with closing(sqlite3.connect(folder / "records.access.db", timeout=30)) as connection, connection:
                connection.execute("UPDATE onceward_access SET value = 0 WHERE name = 'counted_at'")
            if access.count():
                return
    raise RuntimeError("nothing was counted")


class TestReading:
    """A token that may only read: refused before its key is looked up."""

    @pytest.mark.parametrize(("sql", "params"), WRITES)
    @pytest.mark.parametrize("step", [False, True], ids=["key", "step"])
    def test_who_may_not_write_does_not_learn_what_a_write_came_to(
        self, served: Served, database: str, sql: str, params: Any, step: bool
    ) -> None:
        """
        The same refusal whether or not the key is known, byte for byte; the write's own token still gets its replay.
        """
        names = [{"Plan-Key": "p", "Plan-Step": key} if step else {"Idempotency-Key": key} for key in ("ran", "never")]
        reader = served.new_token("demo", role="read")
        first = served.query(database, sql, params, headers=names[0])

        refused = [served.query(database, sql, params, headers=headers, token=reader) for headers in names]
        again = served.query(database, sql, params, headers=names[0])

        assert first.status == 200
        assert {(one.status, one.code, one.document["kind"]) for one in refused} == {(403, "sql_error", "readonly")}
        assert refused[0].body == refused[1].body
        assert (first.body, 200) == (again.body, again.status)

    def test_not_even_after_its_tables_are_gone(self, served: Served, database: str) -> None:
        """
        A statement that could no longer be compiled is refused by its verb; in a batch, with its number.
        """
        reader = served.new_token("demo", role="read")
        batch = {"statements": [{"sql": "SELECT 1"}, {"sql": INSERT, "params": ROW}]}
        headers = {"Idempotency-Key": "k"}
        served.call("POST", f"{database}/batch", batch, headers=headers)
        served.query(database, "DROP TABLE events")

        refused = served.call("POST", f"{database}/batch", batch, headers=headers, token=reader)

        assert (refused.status, refused.document["kind"], refused.document["statement"]) == (403, "readonly", 1)

    def test_what_a_reader_may_ask_it_may_ask_under_a_key(self, served: Served, database: str) -> None:
        """
        The control: SELECT and PRAGMA that only look run once and replay.
        """
        reader = served.new_token("demo", role="read")

        for key, sql in (("a", "SELECT 1"), ("b", "PRAGMA table_info(events)"), ("c", "PRAGMA user_version")):
            answers = [served.query(database, sql, key=key, token=reader) for _ in range(2)]
            assert [(o.status, o.headers.get("idempotency-replayed")) for o in answers] == [(200, None), (200, "true")]


class TestTokens:
    """What a token that has ended, or is for something else, gets to see."""

    def test_a_revoked_token_learns_nothing_of_its_keys(self, served: Served, database: str) -> None:
        """
        Known key, unknown key, other body, no such database: one answer, byte for byte.
        """
        token = served.new_token("demo")
        served.query(database, INSERT, ROW, key="known", token=token)
        command(served.folder, "token", "revoke", token.split("_")[2])
        calls = [(database, ROW, "known"), (database, ROW, "unknown"), (database, ["e-2", "x"], "known"),
                 ("/v1/db/demo/nowhere", ROW, "known"), ("/v1/db/nobody/nowhere", ROW, "known")]  # fmt: skip
        # Another process revoked it: this one believes it for half a second at most.
        until = (served.query(database, "SELECT 1", token=token).status == 401 for _ in range(5_000))

        assert any(until)
        answers = [served.query(path, INSERT, row, key=key, token=token) for path, row, key in calls]
        assert {one.status for one in answers} == {401}
        assert len({one.body for one in answers}) == 1
        assert not any("idempotency-replayed" in one.headers for one in answers)

    def test_a_test_token_on_a_live_resource_is_refused(self, served: Served) -> None:
        """
        And changes nothing there: for every way to touch a database.
        """
        live = served.new_token("demo", environment="live", role="admin")
        path = "/v1/db/demo/only-live"
        served.call("PUT", path, token=live)
        served.query(path, TABLE, token=live)
        calls = [served.query(path, INSERT, ROW), served.query(path, INSERT, ROW, key="k"),
                 served.call("POST", f"{path}/batch", {"statements": [{"sql": INSERT, "params": ROW}]}),
                 served.call("GET", f"{path}/tables")]  # fmt: skip
        dropped = served.call("DELETE", path)

        assert {(one.status, one.code) for one in calls} == {(403, "forbidden")}
        assert (dropped.status, dropped.document["dropped"]) == (200, False), "there is none of that name in test"
        assert served.query(path, "SELECT count(*) FROM events", token=live).document["rows"] == [[0]]

    @pytest.mark.requirement("A28")
    def test_a_leaked_plan_is_useless_to_another_tenant(self, served: Served, database: str) -> None:
        """
        The same plan and step run there as if for the first time, and the first answer is nowhere in it.
        """
        headers = {"Plan-Key": "migrate-7", "Plan-Step": "seed"}
        served.query(database, "INSERT INTO events VALUES ('secret-row', 'x') RETURNING id", headers=headers)
        token = served.new_token("thief", role="admin")
        theirs = database.replace("/demo/", "/thief/")
        served.call("PUT", theirs, token=token)
        served.query(theirs, TABLE, token=token)

        own = served.query(
            theirs, "INSERT INTO events VALUES ('secret-row', 'x') RETURNING id", headers=headers, token=token
        )
        asked = served.query(database, "SELECT 1", headers=headers, token=token)

        assert (own.status, own.document["rowsWritten"], own.headers.get("plan-replayed")) == (200, 1, None)
        assert (asked.status, b"secret-row" in asked.body) == (403, False)

    @pytest.mark.requirement("A28")
    @pytest.mark.fault("a-token-shares-the-keys-of-its-tenant")
    @pytest.mark.parametrize("named", [{"Plan-Key": "migrate-7", "Plan-Step": "seed"}, {"Idempotency-Key": "evt-1"}])
    def test_by_token_another_bearer_of_the_same_database_learns_nothing(
        self, tmp_path: Path, named: dict[str, str]
    ) -> None:
        """
        `--scope-by token`, over a socket: the second bearer sends the first one's plan and step, on the same database
        and with the same statement. It runs for that bearer; answer and header names are those of a fresh name.
        """
        service = Served.started(tmp_path, "--scope-by", "token", "--flood-burst", "100000")
        try:
            path = service.database(table="CREATE TABLE events (id INTEGER PRIMARY KEY, name TEXT)")
            mine, theirs = service.new_token("demo"), service.new_token("demo")
            sql = "INSERT INTO events (name) VALUES (?) RETURNING id, name"
            first, again = [service.query(path, sql, ["secret"], headers=named, token=mine) for _ in range(2)]
            stolen = service.query(path, sql, ["secret"], headers=named, token=theirs)
            other_names = {field: f"{value}-fresh" for field, value in named.items()}
            fresh = service.query(path, sql, ["secret"], headers=other_names, token=theirs)
            rows = service.count(path)
        finally:
            service.stop()

        assert [[1, "secret"]] == first.document["rows"] == again.document["rows"]
        assert (stolen.document["rows"], fresh.document["rows"], rows) == ([[2, "secret"]], [[3, "secret"]], 3)
        assert (fresh.status, sorted(fresh.headers)) == (stolen.status, sorted(stolen.headers))

    def test_a_rotation_keeps_the_scope_also_of_plans(self, served: Served, database: str) -> None:
        """
        By command, with an overlap of nothing: the old secret is refused, the new one is told what the old one did.
        """
        old = served.new_token("demo")
        headers = {"Plan-Key": "p", "Plan-Step": "s"}
        first = served.query(database, INSERT, ROW, headers=headers, token=old)
        new = command(served.folder, "token", "rotate", old.split("_")[2], "--overlap", "0")["token"]

        again = served.query(database, INSERT, ROW, headers=headers, token=new)
        refused = (served.query(database, "SELECT 1", token=old).status == 401 for _ in range(5_000))

        assert (first.body, "true") == (again.body, again.headers["plan-replayed"])
        assert any(refused)


@pytest.fixture
def small(served: Served) -> Served:
    """A service where a statement costs one unit."""
    return served


class TestQuotas:
    """Records and bytes, refused before the effect."""

    def tenant(self, small: Served, name: str, **quota: int) -> tuple[str, str]:
        """A tenant with a quota, a table and a token: the path and the token."""
        with small.access() as access:
            access.create_tenant(name, **quota)
        token, path = small.new_token(name, role="admin"), f"/v1/db/{name}/shop"
        made = [small.call("PUT", path, token=token), small.query(path, TABLE, token=token)]
        if [one.status for one in made] != [201, 200]:
            raise RuntimeError("the tenant was not made")
        return path, token

    def insert(self, small: Served, path: str, token: str, number: int, key: str | None = None) -> Heard:
        return small.query(path, INSERT, [f"e-{number}", "x"], key=key, token=token)

    def rows(self, small: Served, path: str, token: str) -> int:
        return int(small.query(path, "SELECT count(*) FROM events", token=token).document["rows"][0][0])

    def test_a_full_quota_refuses_before_the_effect_and_the_key_is_free(self, small: Served) -> None:
        """
        Two records: the third key is refused and nothing is written. The first two replay, as often as one likes, and
        count once. Raised by command, the same key runs.
        """
        path, token = self.tenant(small, "brim", quota_records=2)
        for _ in range(5):
            taken = [self.insert(small, path, token, n, f"k{n}") for n in range(2)]
        refused = self.insert(small, path, token, 2, "k2")
        still = self.insert(small, path, token, 0, "k0")
        failed = small.query(path, "SELECT * FROM nowhere", key="k9", token=token)
        held = self.rows(small, path, token)
        command(small.folder, "tenant", "quota", "brim", "--records", "3")
        # A quota that was changed is heeded after five seconds.
        raised = next(
            (one for one in (self.insert(small, path, token, 2, "k2") for _ in range(5_000)) if one.status == 200), None
        )

        assert [(one.status, one.headers.get("idempotency-replayed")) for one in taken] == [(200, "true")] * 2
        assert (refused.status, refused.code) == (429, "quota_exceeded")
        assert (still.status, still.headers["idempotency-replayed"]) == (200, "true")
        assert (failed.status, held) == (429, 2)
        assert raised is not None and "idempotency-replayed" not in raised.headers
        assert self.rows(small, path, token) == 3

    def test_what_failed_takes_no_room(self, small: Served) -> None:
        """
        One record: ten failures leave room for it.
        """
        path, token = self.tenant(small, "clumsy", quota_records=1)
        failed = {small.query(path, "SELEC", key=f"k{n}", token=token).status for n in range(10)}

        assert (failed, self.insert(small, path, token, 1, "k").status) == ({400}, 200)

    def test_what_is_in_databases_is_counted(self, small: Served) -> None:
        """
        Records and bytes that another service, or this one before its last start, let through: the files decide. With
        and without a key what grows is refused; reading and deleting go on, and deleted rows make room.
        """
        path, token = self.tenant(small, "keeper", quota_records=1_000)
        for number in range(3):
            self.insert(small, path, token, number, f"k{number}")
        with small.access() as access:
            access.set_quota("keeper", records=3, bytes=None)
        heavy, heavys = self.tenant(small, "heavy", quota_bytes=300_000)
        light, lights = self.tenant(small, "light", quota_bytes=300_000)
        big, more = ["big", "x" * 200_000], ["more", "x" * 200_000]
        for one, its in ((heavy, heavys), (light, lights)):
            small.query(one, INSERT, big, token=its)
        refused = [small.query(heavy, INSERT, more, key=key, token=heavys) for key in ("k", None)]
        read, deleted = self.rows(small, light, lights), small.query(light, "DELETE FROM events", token=lights)
        count_again(small.folder)
        again = Served.started(small.folder, "--flood-burst", "100000")
        try:
            refused += [self.insert(again, path, token, 3, "k3"), again.query(heavy, INSERT, more, token=heavys)]
            replayed = self.insert(again, path, token, 0, "k0")
            after = again.query(light, INSERT, more, key="k", token=lights)
        finally:
            again.stop()

        assert [(one.status, one.code) for one in refused] == [(429, "quota_exceeded")] * 4
        assert (replayed.status, replayed.headers["idempotency-replayed"]) == (200, "true")
        assert (read, deleted.status, after.status) == (1, 200, 200)
        assert command(small.folder, "tenant", "show", "keeper")["usedRecords"] == 3

    @pytest.mark.requirement("A34")
    def test_at_zero_nothing_runs_until_the_top_up_by_command(self, small: Served) -> None:
        """
        402 for a statement, a step, and a batch that costs too much; the key is unused. A top-up sent twice adds once.
        """
        command(small.folder, "tenant", "create", "payer", "--prepaid")
        token, path = small.new_token("payer", role="admin"), "/v1/db/payer/shop"
        small.call("PUT", path, token=token)
        batch = {"statements": [{"sql": TABLE}, {"sql": INSERT, "params": ROW}]}
        send = [
            lambda: small.query(path, "SELECT 1", token=token),
            lambda: small.query(path, "SELECT 1", headers={"Plan-Key": "p", "Plan-Step": "s"}, token=token),
            lambda: small.call("POST", f"{path}/batch", batch, headers={"Idempotency-Key": "b"}, token=token),
        ]
        refused = [one() for one in send]
        for _ in range(2):
            command(small.folder, "tenant", "topup", "payer", "2", "--key", "invoice-1")
        taken, last = send[2](), send[0]()

        assert {(one.status, one.code) for one in refused} == {(402, "balance_exhausted")}
        assert (
            taken.status,
            taken.document["rowsWritten"],
            taken.headers.get("idempotency-replayed"),
        ) == (200, 1, None)
        assert (last.status, command(small.folder, "tenant", "show", "payer")["balanceMicro"]) == (402, 0)


KILLED = """
import sys
from onceward.runtime import failpoints
from onceward.cli import main
from onceward.service.sql import database_files# The failpoints' own module.
failpoints.arm(sys.argv[1], "kill", skip=int(sys.argv[2]))
main(["tenant", "erase", "acme", "--yes", "acme", "--store", sys.argv[3]])
"""


class TestErasing:
    """`onceward tenant erase` beside a running service: its databases go, too, and nobody else's."""

    @pytest.fixture
    def acme(self, served: Served) -> dict[str, str]:
        """A tenant with two databases in each environment, open in the service: its tokens by environment."""
        tokens = {one: served.new_token("acme", environment=one, role="admin") for one in ("live", "test")}
        for token in tokens.values():
            for name in ("shop", "crm"):
                served.call("PUT", f"/v1/db/acme/{name}", token=token)
                served.query(f"/v1/db/acme/{name}", TABLE, token=token)
                served.query(f"/v1/db/acme/{name}", INSERT, ["personal-data", "x"], key="k", token=token)
        return tokens

    def left(self, served: Served, tenant: str = "acme") -> list[str]:
        """What lies in a tenant's folders."""
        folders = [served.folder / "databases" / namespace_of(one, tenant) for one in ("live", "test")]
        return [path.name for folder in folders if folder.exists() for path in (folder, *folder.iterdir())]

    def test_databases_of_both_environments_go_and_nobody_elses(
        self, served: Served, acme: dict[str, str], database: str
    ) -> None:
        """
        No file, no folder, no row. Others' databases work on; one who begins anew under the name finds nothing.
        """
        other = served.new_token("acme-2", role="admin")
        served.call("PUT", "/v1/db/acme-2/shop", token=other)
        served.query(database, INSERT, ROW, key="k")

        told = command(served.folder, "tenant", "erase", "acme", "--yes", "acme")
        refused = served.query("/v1/db/acme/shop", "SELECT * FROM events", token=acme["live"])
        anew = served.new_token("acme", environment="live", role="admin")
        unknown = served.query("/v1/db/acme/shop", "SELECT * FROM events", token=anew)
        served.call("PUT", "/v1/db/acme/shop", token=anew)
        made = [served.query("/v1/db/acme/shop", sql, params, key=key, token=anew)
                for sql, params, key in ((TABLE, None, None), (INSERT, ROW, "k"))]  # fmt: skip
        names = served.call("GET", "/v1/db/acme", token=anew).document["databases"]

        assert told["databases"] == 4
        assert (refused.status, unknown.status) == (401, 404)
        assert [(one.status, one.headers.get("idempotency-replayed")) for one in made] == [(200, None)] * 2
        assert names == ["shop"]
        assert served.query("/v1/db/acme-2/shop", "SELECT 1", token=other).status == 200
        assert served.query(database, INSERT, ROW, key="k").headers["idempotency-replayed"] == "true"
        command(served.folder, "tenant", "erase", "acme", "--yes", "acme")
        assert self.left(served) == []

    def test_a_killed_erasure_is_finished_by_the_same_command(self, served: Served, acme: dict[str, str]) -> None:
        """
        kill -9 after a rename, and between two databases: the service answers on, and at the end nothing is left.
        """
        store = store_url_of(Settings(folder=str(served.folder)))
        for failpoint, skip in (("sql.drop.renamed", "0"), ("sql.drop.after", "1")):
            ran = subprocess.run([sys.executable, "-c", KILLED, failpoint, skip, store], timeout=60, check=False)
            assert ran.returncode == -signal.SIGKILL
            assert self.left(served) != [], "a kill in the middle leaves something to finish"
            assert served.query("/v1/db/acme/crm", "SELECT 1", token=acme["test"]).status == 401
            assert served.call("GET", "/v1/db/demo").status == 200

        told = command(served.folder, "tenant", "erase", "acme", "--yes", "acme")

        assert told["databases"] == 1, "three were gone before"
        assert self.left(served) == []
        assert command(served.folder, "tenant", "show", "acme")["erasedAt"]

    def test_deltas_events_and_notes_go_with_the_tenant_and_nobody_elses(self, served: Served) -> None:
        """
        Of the erased tenant no file beside the store says a word; another's delta and event stand.
        """
        store = store_url_of(Settings(folder=str(served.folder)))
        tokens = {name: served.new_token(name, role="admin") for name in ("gone-1", "kept-1")}
        for name, token in tokens.items():
            delta = {"customerId": "cus_1", "delta": -5, "reason": f"personal {name}", "referenceId": f"r-{name}"}
            served.call("POST", "/api/v1/balance/delta", delta, token=token, headers={"Idempotency-Key": f"k-{name}"})
            with Inbox(store, scope=f"live:{name}") as inbox:
                inbox.add(Source("plain", StandardWebhooks(), [SECRET], lambda event: None))
                headers, body = signed_sample(StandardWebhooks(), SECRET, f"evt-{name}", now=time.time())
                inbox.receive("plain", headers, body)

        journal = [*served.folder.glob("records.journal.db*")]
        while not any(b"gone-1" in path.read_bytes() for path in journal):
            continue  # Notes are written behind the calls: one that is still to be written comes after the erasure.
        told = command(served.folder, "tenant", "erase", "gone-1", "--yes", "gone-1")
        stands = served.call("GET", "/api/v1/balance/derive/cus_1", token=tokens["kept-1"])

        assert told["rows"] >= 3, "a customer, a delta and an event, at least"
        assert (stands.status, stands.document["balance"]) == (200, "-5")
        files = [path for path in served.folder.glob("records*") if path.is_file()]
        assert [path.name for path in files if b"gone-1" in path.read_bytes()] == []
        assert [path.name for path in files if b"kept-1" in path.read_bytes()] != [], "the search finds what is there"

    def test_where_nobody_knows_the_folder_it_is_said(self, served: Served, tmp_path: Path) -> None:
        """
        A store elsewhere: a note on stderr and null for programs, and --folder helps.
        """
        store = f"sqlite:///{tmp_path}/other.db"
        for words in (["store", "init"], ["tenant", "create", "acme"]):
            typed(*words, "--store", store)
        erase = ["tenant", "erase", "acme", "--yes", "acme", "--store", store]

        code, out, err = typed(*erase)
        said = typed(*erase, "--folder", str(served.folder))
        wrong = typed(*erase, "--folder", "/nowhere")

        assert (code, json.loads(out)["databases"], "--folder" in err) == (0, None, True)
        assert (said[0], json.loads(said[1])["databases"], said[2]) == (0, 0, "")
        assert (wrong[0], "there is no folder /nowhere" in wrong[2]) == (2, True)
