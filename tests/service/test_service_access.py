"""Who may call, what it costs, and what operators see: over a real socket."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from service_support import INSERT, Served

from onceward import Gate
from onceward.cli import main
from onceward.service.settings import Settings, store_url_of

ROW = ["e-1", "click"]


class TestTokens:
    """Authorise before anything is looked up: whoever is nobody learns nothing."""

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Authorization": ""},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer "},
            {"Authorization": "Basic ZGVtbzpkZW1v"},
            {"Authorization": "Bearer ow_live_aaaaaaaaaaaa_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"},
            {"Authorization": "Bearer 'or 1=1"},
        ],
    )
    @pytest.mark.parametrize("path", ["/v1/db/demo/there", "/v1/db/demo/nowhere", "/v1/db/nobody/there"])
    def test_without_a_valid_token_everything_looks_alike(
        self, served: Served, headers: dict[str, str], path: str
    ) -> None:
        """
        401 with the same shape whether the database is there or not, and whether the body was right or not.
        """
        served.call("PUT", "/v1/db/demo/there")
        answers = [
            served.call("POST", f"{path}/query", raw=raw, token="", headers=headers)
            for raw in (b'{"sql": "SELECT 1"}', b"not JSON")
        ]

        assert {(one.status, one.code, one.headers["www-authenticate"]) for one in answers} == {
            (401, "token_invalid", "Bearer")
        }
        assert len({one.body for one in answers}) == 1

    def test_the_scheme_may_be_written_in_any_case(self, served: Served) -> None:
        """
        RFC 9110 says so, and clients do it.
        """
        answer = served.call("GET", "/v1/db/demo", token="", headers={"Authorization": f"bearer  {served.token}"})

        assert answer.status == 200

    def test_a_revoked_token_is_refused_within_a_second(self, served: Served) -> None:
        """
        And what it asks for then is told as to anybody.
        """
        token = served.new_token("demo")
        before = served.call("GET", "/v1/db/demo", token=token)
        with served.access() as access:
            access.revoke_token(token.split("_")[2])
        calls = (served.call("GET", "/v1/db/demo", token=token).status for _ in range(5_000))
        refused = next((status for status in calls if status != 200), None)

        assert (before.status, refused) == (200, 401), "it is believed for half a second at most"
        assert {served.call("GET", "/v1/db/demo", token=token).status for _ in range(20)} == {401}

    @pytest.mark.parametrize(
        "sql",
        [
            "INSERT INTO events VALUES ('x', 'y')",
            "DELETE FROM events",
            "CREATE TABLE more (id)",
            "DROP TABLE events",
            "WITH a AS (SELECT 1) INSERT INTO events SELECT 'x', 'y'",
            "INSERT INTO events VALUES ('x', 'y') RETURNING id",
            "PRAGMA user_version = 7",
            "REPLACE INTO events VALUES ('x', 'y')",
        ],
    )
    @pytest.mark.parametrize("key", [None, "k"])
    def test_a_token_that_may_read_cannot_write_by_any_trick(
        self, served: Served, database: str, sql: str, key: str | None
    ) -> None:
        """
        With a key or without: refused, and nothing changed.
        """
        token = served.new_token("demo", role="read")

        refused = served.query(database, sql, token=token, key=key)

        assert (refused.status, refused.code) == (403, "sql_error")
        assert refused.document["kind"] in ("readonly", "denied")
        assert served.count(database) == 0

    def test_a_token_for_some_databases_sees_no_others(self, served: Served, database: str) -> None:
        """
        Not in the list, either.
        """
        name = database.rpartition("/")[2]
        other = served.database().rpartition("/")[2]
        token = served.new_token("demo", databases=[name])

        assert [name] == served.call("GET", "/v1/db/demo", token=token).document["databases"]
        assert served.query(database, "SELECT 1", token=token).status == 200
        assert served.query(f"/v1/db/demo/{other}", "SELECT 1", token=token).status == 403
        assert served.query("/v1/db/demo/not-there", "SELECT 1", token=token).status == 403

    def test_secrets_are_nowhere_but_with_their_owner(self, served: Served, database: str) -> None:
        """
        The token's secret and the key are not in any file of the service, its log included.
        """
        served.query(database, INSERT, ROW, key="canary-key-7f3a")
        secret = served.token.split("_")[3].encode()
        files = [path for path in served.folder.rglob("*") if path.is_file()]

        assert [path.name for path in files if secret in path.read_bytes()] == []
        assert "canary-key-7f3a" not in served.log


@pytest.fixture
def priced(served: Served) -> Served:
    """A service where a statement costs one unit."""
    return served


class TestMoney:
    """Prepaid tenants: at zero nothing runs, and no key is used up."""

    @pytest.mark.requirement("A34")
    def test_at_zero_it_is_refused_before_anything_runs_and_the_key_is_free(self, priced: Served) -> None:
        """
        Two units: two statements run. The third is refused; after a top-up the same key runs. Replays cost nothing.
        """
        with priced.access() as access:
            access.create_tenant("payer-0", prepaid=True)
            access.top_up("payer-0", 3_000_000, reference="first")
        token = priced.new_token("payer-0", role="admin")
        path = "/v1/db/payer-0/shop"
        priced.call("PUT", path, token=token)
        made = priced.query(path, "CREATE TABLE events (id TEXT PRIMARY KEY, name TEXT)", token=token)
        rows = [priced.query(path, INSERT, [f"e-{n}", "x"], key=f"k{n}", token=token) for n in range(2)]

        refused = priced.query(path, INSERT, ["e-2", "x"], key="k2", token=token)
        replayed = priced.query(path, INSERT, ["e-0", "x"], key="k0", token=token)
        with priced.access() as access:
            access.top_up("payer-0", 1_000_000, reference="second")
        again = priced.query(path, INSERT, ["e-2", "x"], key="k2", token=token)

        assert [made.status, *(row.status for row in rows)] == [200, 200, 200]
        assert (refused.status, refused.code) == (402, "balance_exhausted")
        assert (replayed.status, replayed.headers["idempotency-replayed"]) == (200, "true")
        assert (again.status, again.headers.get("idempotency-replayed")) == (200, None)

    def test_what_failed_is_given_back(self, priced: Served) -> None:
        """
        One unit: a statement that SQLite refuses costs nothing, so the next one still runs.
        """
        with priced.access() as access:
            access.create_tenant("careful", prepaid=True)
            access.top_up("careful", 1_000_000, reference="first")
        token = priced.new_token("careful", role="admin")
        priced.call("PUT", "/v1/db/careful/shop", token=token)

        answers = [priced.query("/v1/db/careful/shop", sql, token=token, key=key).status
                   for sql, key in (("SELEC", None), ("SELEC", "k"), ("SELECT 1", "j"), ("SELECT 1", "l"))]  # fmt: skip

        assert answers == [400, 400, 200, 402]


class TestFloods:
    """Calls without a valid token, counted by address."""

    @pytest.mark.requirement("A33", "A35", "A36")
    def test_a_flood_of_strangers_is_slowed_and_nobody_else_is(self, tmp_path: Path) -> None:
        """
        The burst is let through, then 429 with whole seconds; a valid token from the same address goes on unhindered.
        """
        service = Served.started(tmp_path, "--flood-burst", "5")
        try:
            strangers = [service.call("GET", "/v1/db/demo", token="") for _ in range(8)]
            known = [service.call("GET", "/v1/db/demo").status for _ in range(50)]
        finally:
            service.stop()

        assert [one.status for one in strangers] == [401] * 5 + [429] * 3
        assert all(re.fullmatch(r"[1-9][0-9]*", one.headers["retry-after"]) for one in strangers[5:])
        assert {one.code for one in strangers[5:]} == {"rate_limited"}
        assert set(known) == {200}


class TestRecords:
    """The records API, for operators of one tenant."""

    @pytest.fixture
    def in_doubt(self, served: Served) -> str:
        """The id of a record of the tenant demo that is in doubt."""
        with Gate(store_url_of(Settings(folder=str(served.folder))), scope="test:demo") as gate:
            gate.store.purge(1)

            def boom() -> None:
                raise OSError("cut off")

            key = f"charge-{len(gate.records.list())}"
            with pytest.raises(OSError, match="cut off"):
                gate.run(key, boom)
            found = gate.records.get(key)
        if found is None:
            raise RuntimeError("no record")
        return found.id

    def test_what_is_in_doubt_is_seen_and_decided(self, served: Served, in_doubt: str) -> None:
        """
        Listed as in doubt; decided with a result; then settled, and not to be decided again otherwise.
        """
        listed = served.call("GET", "/v1/records?unsettled=true").document["records"]
        decided = served.call("POST", f"/v1/records/{in_doubt}/reconcile", {"result": {"id": "ch_1"}})
        shown = served.call("GET", f"/v1/records/{in_doubt}")
        again = served.call("POST", f"/v1/records/{in_doubt}/release", {})

        assert (in_doubt, "in_doubt") in {(one["id"], one["state"]) for one in listed}
        assert (decided.status, decided.document["state"]) == (200, "settled")
        assert shown.document["result"] == {"id": "ch_1"}
        assert (again.status, again.code) == (409, "illegal_move")

    def test_a_stale_decision_is_refused(self, served: Served, in_doubt: str) -> None:
        """
        With the fence of another claim: nothing is changed.
        """
        refused = served.call("POST", f"/v1/records/{in_doubt}/release", {"fence": 1})

        assert refused.status == 409
        assert served.call("GET", f"/v1/records/{in_doubt}").document["state"] == "in_doubt"

    def test_other_tenants_records_look_as_if_there_were_none(self, served: Served, in_doubt: str) -> None:
        """
        By id, by scope, and for deciding; and without the admin role for anybody.
        """
        stranger = served.new_token("stranger", role="admin")
        writer = served.new_token("demo", role="write")
        paths = [("GET", f"/v1/records/{in_doubt}", None), ("GET", "/v1/records?scope=test:demo", None),
                 ("POST", f"/v1/records/{in_doubt}/release", {})]  # fmt: skip

        assert [served.call(*path, token=stranger).status for path in paths] == [404, 404, 404]
        assert [served.call(*path, token=writer).status for path in paths] == [403, 403, 403]
        assert served.call("GET", "/v1/records", token=stranger).document["records"] == []

    @pytest.mark.parametrize(
        "path",
        ["/v1/records?limit=0", "/v1/records?limit=101", "/v1/records?limit=x", "/v1/records?after=zz",
         "/v1/records?limit=1&limit=2", "/v1/records?nonsense=1", "/v1/records?limit=９"],
    )  # fmt: skip
    def test_odd_parameters_are_refused_in_words(self, served: Served, path: str) -> None:
        """
        400, never a guess.
        """
        answer = served.call("GET", path.replace("９", "%EF%BC%99"))

        assert (answer.status, answer.code) == (400, "request_invalid")


class TestRunning:
    """Starting, stopping, and what a stranger finds."""

    def test_it_ends_when_it_is_told_to_and_keeps_what_it_acknowledged(self, tmp_path: Path) -> None:
        """
        SIGTERM: exit code 0. Started again: no new token, the same rows, the same answers.
        """
        service = Served.started(tmp_path)
        path = service.database()
        first = service.query(path, INSERT, ROW, key="k")
        code = service.stop()
        again = service.again()
        try:
            replayed, rows = again.query(path, INSERT, ROW, key="k"), again.count(path)
        finally:
            again.stop()

        assert code == 0
        assert (first.body, "true", 1) == (replayed.body, replayed.headers["idempotency-replayed"], rows)

    def test_killed_it_keeps_what_it_acknowledged(self, tmp_path: Path) -> None:
        """
        kill -9 of the whole service: both the row and its record, or neither.
        """
        service = Served.started(tmp_path)
        path = service.database()
        first = service.query(path, INSERT, ROW, key="k")
        service.process.send_signal(signal.SIGKILL)
        service.stop()
        again = service.again()
        try:
            replayed, rows = again.query(path, INSERT, ROW, key="k"), again.count(path)
        finally:
            again.stop()

        assert (first.body, "true", 1) == (replayed.body, replayed.headers["idempotency-replayed"], rows)

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (("--port", "99999"), "port"),
            (("--port", "x"), "whole number"),
            (("--store", "redis://localhost"), "sqlite"),
            (("--log-level", "loud"), "--log-level"),
            (("--trusted-proxies", "everyone"), "trusted proxy"),
            (("--writers", "0"), "writers"),
            (("--config", "nowhere.toml"), "nowhere.toml"),
        ],
    )
    def test_a_setting_that_cannot_work_is_told_before_anything_starts(
        self, tmp_path: Path, flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        One line, exit code 2, and no folder was made.
        """
        code = main(["serve", "--folder", str(tmp_path / "data"), *flags])
        told = capsys.readouterr()

        assert (code, told.out) == (2, "")
        assert words in told.err
        assert told.err.count("\n") == 1
        assert not (tmp_path / "data").exists()

    def test_the_file_and_the_environment_say_what_the_flags_do_not(self, tmp_path: Path) -> None:
        """
        A flag wins over a variable, a variable over the file.
        """
        (tmp_path / "serve.toml").write_text("retain = 3600\nflood_burst = 9\n")
        service = Served.started(tmp_path, "--config", str(tmp_path / "serve.toml"), ONCEWARD_SERVE_RETAIN="7200")
        try:
            contract = service.call("GET", "/.well-known/idempotency", token="").document
        finally:
            service.stop()

        assert contract["retainSeconds"] == 7_200

    def test_what_there_is_can_be_read_by_programs_and_people(self, served: Served) -> None:
        """
        OpenAPI 3.1 with every endpoint, and a page that loads nothing from elsewhere.
        """
        document = served.call("GET", "/openapi.json", token="").document
        page = served.call("GET", "/", token="")

        assert document["openapi"] == "3.1.0"
        assert {
            operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
        } == {
            "query",
            "batch",
            "tables",
            "databases",
            "create",
            "drop",
            "listed",
            "shown",
            "reconciled",
            "released",
            *("emitted", "emitted_many", "closed", "derived", "receipted", "looked_up", "gaps_found"),
            "received",
            "usage",
        }
        assert page.status == 200
        assert not re.search(rb"(?:src|href)\s*=\s*['\"]?(?:https?:)?//", page.body)
        assert not re.search(rb"<script(?![^>]* src=)", page.body)

    @pytest.mark.parametrize(
        ("method", "path", "status", "code"),
        [
            ("GET", "/nowhere", 404, "not_found"),
            ("GET", "/v1/db/demo/d1/query", 405, "method_not_allowed"),
            ("PATCH", "/v1/records", 405, "method_not_allowed"),
            ("GET", "/.well-known/idempotency/nonsense", 404, "not_found"),
        ],
    )
    def test_what_is_not_here_is_a_problem_too(
        self, served: Served, method: str, path: str, status: int, code: str
    ) -> None:
        """
        problem+json for every refusal, also for those of the framework.
        """
        answer = served.call(method, path)

        assert (status, code, "application/problem+json") == (
            answer.status,
            answer.code,
            answer.headers["content-type"],
        )

    def test_health_and_readiness_need_no_token(self, served: Served) -> None:
        """
        For whoever watches.
        """
        assert [served.call("GET", path, token="").status for path in ("/health", "/ready")] == [200, 200]

    def test_its_log_is_lines_of_json_with_digests_of_keys(self, served: Served, database: str) -> None:
        """
        Method, path, status, time; the key as a digest.
        """
        served.query(database, "SELECT 1", key="seen-in-the-log")
        calls: list[Any] = []
        deadline = time.monotonic() + 30
        while not calls and time.monotonic() < deadline:  # It is written when the answer is on its way.
            lines = [json.loads(line) for line in served.log.splitlines()]
            calls = [line for line in lines if line.get("path") == f"{database}/query" and "idempotency-key" in line]

        assert len(calls) == 1
        assert re.fullmatch(r"[0-9a-f]{12}", calls[0]["idempotency-key"])
