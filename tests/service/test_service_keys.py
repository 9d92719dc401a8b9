"""Keys and plans over a real socket: the first document's promises, each as a stranger would try it."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

import pytest
from service_support import INSERT, ON_BOTH, Heard, Served

from onceward.client import Client
from onceward.service.web.problems import STATUSES
from onceward.service.web.service_contract import all_refusals

pytestmark = ON_BOTH
ROW = ["e-1", "click"]


class TestKeys:
    """`Idempotency-Key`: one request, one effect, one answer."""

    @pytest.mark.requirement("A02", "A03", "A04", "A05", "A06", "B02", "B16")
    def test_a_retry_is_answered_as_the_first_request_was_and_runs_nothing(self, served: Served, database: str) -> None:
        """
        Status and body byte for byte, the marker on the second only; one row, however often it is sent.
        """
        first, *others = [served.query(database, INSERT, ROW, key="evt-1") for _ in range(4)]

        assert (first.status, first.document["rowsWritten"]) == (200, 1)
        assert "idempotency-replayed" not in first.headers
        assert {(200, first.body, "true")} == {(o.status, o.body, o.headers["idempotency-replayed"]) for o in others}
        assert served.count(database) == 1

    @pytest.mark.requirement("A07")
    def test_a_request_that_failed_may_be_sent_again_under_its_key(self, served: Served) -> None:
        """
        The table is missing; it is made; the same key then runs.
        """
        database = served.database(table="")
        missing = served.query(database, INSERT, ROW, key="evt-1")
        served.query(database, "CREATE TABLE events (id TEXT PRIMARY KEY, name TEXT)")

        again = served.query(database, INSERT, ROW, key="evt-1")

        assert (missing.status, missing.code, missing.document["kind"]) == (400, "sql_error", "unknownTable")
        assert (again.status, again.document["rowsWritten"]) == (200, 1)
        assert "idempotency-replayed" not in again.headers

    @pytest.mark.requirement("A08")
    def test_an_answer_that_was_never_read_is_learnt_by_the_retry(self, served: Served, database: str) -> None:
        """
        The client hangs up right after sending: the row is there, and the retry is told so.
        """
        where = urlsplit(served.address)
        body = b'{"sql": "INSERT INTO events VALUES (\'e-1\', \'click\')", "params": null}'
        with socket.create_connection((where.hostname or "", where.port or 0)) as line:
            line.sendall(
                f"POST {database}/query HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token}\r\n"
                "Idempotency-Key: evt-1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
        answers = [served.call("POST", f"{database}/query", raw=body, headers={"Idempotency-Key": "evt-1"})
                   for _ in range(2)]  # fmt: skip

        assert {answer.status for answer in answers} == {200}
        assert answers[1].headers["idempotency-replayed"] == "true"
        assert served.count(database) == 1

    @pytest.mark.requirement("A09", "A12", "E19", "E20")
    def test_fifty_at_the_same_instant_are_one_execution(self, served: Served, database: str) -> None:
        """
        What the document could only do its best about: all are answered alike, and one row is written.
        """
        answers = at_once(50, lambda _: served.query(database, INSERT, ROW, key="evt-1"))

        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
        assert served.count(database) == 1

    @pytest.mark.requirement("A11", "A13", "A14")
    def test_the_constraint_stands_behind_the_key(self, served: Served, database: str) -> None:
        """
        Without keys: the second insert of a row is refused in words that a program understands; DO NOTHING writes none.
        """
        answers = at_once(8, lambda _: served.query(database, INSERT, ROW))
        ignored = served.query(database, f"{INSERT} ON CONFLICT (id) DO NOTHING", ROW)
        refused = [answer for answer in answers if answer.status != 200]

        assert len(refused) == 7
        assert {
            (one.status, one.code, one.document["kind"], one.document["table"], one.document["retry"])
            for one in refused
        } == {(409, "sql_error", "uniqueViolation", "events", "never")}
        assert all("ON CONFLICT" in one.document["hint"] for one in refused)
        assert (ignored.status, ignored.document["rowsWritten"]) == (200, 0)

    @pytest.mark.requirement("A17", "A20")
    @pytest.mark.parametrize(
        ("sql", "params"), [(INSERT, ["e-2", "click"]), (INSERT, ["e-1", "clack"]), ("SELECT 1", None)]
    )
    def test_a_key_stands_for_one_request(self, served: Served, database: str, sql: str, params: list[str]) -> None:
        """
        Another statement or other parameters under it: refused, and the first answer stays what it was.
        """
        first = served.query(database, INSERT, ROW, key="evt-1")
        other = served.query(database, sql, params, key="evt-1")

        assert (other.status, other.code, other.document["retry"]) == (422, "key_reused", "new-key")
        assert first.body == served.query(database, INSERT, ROW, key="evt-1").body
        assert served.count(database) == 1

    @pytest.mark.requirement("A18")
    def test_a_key_has_at_most_two_hundred_characters_and_is_never_cut(self, served: Served, database: str) -> None:
        """
        200 are taken, 201 are refused, and two that are alike in their first 200 cannot meet.
        """
        longest = "k" * 200

        assert served.query(database, INSERT, ROW, key=longest).status == 200
        for key in (longest + "a", longest + "b", "k" * 300):
            refused = served.query(database, INSERT, ["e-2", "x"], key=key)
            assert (refused.status, refused.code) == (400, "key_invalid")
        assert served.count(database) == 1

    @pytest.mark.requirement("A40")
    def test_without_a_key_nothing_is_remembered(self, served: Served, database: str) -> None:
        """
        Two calls run twice, and nobody says replayed.
        """
        served.query(database, "CREATE TABLE numbers (n INTEGER)")
        insert = "INSERT INTO numbers SELECT count(*) FROM numbers"
        answers = [served.query(database, insert) for _ in range(2)]

        assert served.count(database, "numbers") == 2
        assert not any("idempotency-replayed" in answer.headers for answer in answers)

    @pytest.mark.parametrize("key", ["evt-1", '"evt-1"', "  evt-1  "])
    def test_bare_and_quoted_are_one_key(self, served: Served, database: str, key: str) -> None:
        """
        As the IETF draft writes it, and as everybody else does.
        """
        served.query(database, INSERT, ROW, key="evt-1")

        assert served.query(database, INSERT, ROW, key=key).headers["idempotency-replayed"] == "true"

    def test_a_batch_has_one_key_and_happens_whole_or_not_at_all(self, served: Served, database: str) -> None:
        """
        The second statement fails: nothing of the first is there, and the key is free.
        """
        bad = {"statements": [{"sql": INSERT, "params": ROW}, {"sql": INSERT, "params": ROW}]}
        good = {"statements": [{"sql": INSERT, "params": ["e-1", "a"]}, {"sql": INSERT, "params": ["e-2", "b"]}]}
        headers = {"Idempotency-Key": "batch-1"}
        refused = served.call("POST", f"{database}/batch", bad, headers=headers)
        empty = served.count(database)

        taken = [served.call("POST", f"{database}/batch", good, headers=headers) for _ in range(2)]

        assert (refused.status, refused.document["kind"], refused.document["statement"]) == (409, "uniqueViolation", 1)
        assert empty == 0
        assert taken[0].body == taken[1].body
        assert taken[1].headers["idempotency-replayed"] == "true"
        assert served.count(database) == 2


class TestPlans:
    """`Plan-Key` and `Plan-Step`: what settled replays, the rest runs."""

    def step(self, served: Served, database: str, name: str, sql: str, plan: str = "migrate-1") -> Heard:
        return served.query(database, sql, headers={"Plan-Key": plan, "Plan-Step": name})

    @pytest.mark.requirement("A21", "A22", "A23", "A24", "A25", "A29", "A30", "A31")
    def test_a_plan_that_broke_off_goes_on_where_it_was(self, served: Served) -> None:
        """
        Step 3 of 4 fails. Run again: 1 and 2 replay (DDL too), 3 and 4 run. Another plan's steps are its own.
        """
        database = served.database(table="")
        steps = [("create", "CREATE TABLE t (id INTEGER PRIMARY KEY)"), ("seed", "INSERT INTO t VALUES (1)"),
                 ("fill", "INSERT INTO u SELECT id FROM t"), ("check", "INSERT INTO t VALUES (2)")]  # fmt: skip
        first = [self.step(served, database, *one) for one in steps[:3]]
        served.query(database, "CREATE TABLE u (id INTEGER)")

        again = [self.step(served, database, *one) for one in steps]
        other = self.step(served, database, "seed", "INSERT INTO t VALUES (3)", plan="migrate-2")

        assert [answer.status for answer in first] == [200, 200, 400]
        assert [answer.status for answer in again] == [200] * 4
        assert [answer.headers.get("plan-replayed") for answer in again] == ["true", "true", None, None]
        assert not any("idempotency-replayed" in answer.headers for answer in again)
        assert (other.status, other.headers.get("plan-replayed")) == (200, None)
        assert served.count(database, "t") == 3

    @pytest.mark.requirement("A32")
    @pytest.mark.parametrize(
        ("headers", "code"),
        [
            ({"Plan-Key": "p"}, "plan_incomplete"),
            ({"Plan-Step": "s"}, "plan_incomplete"),
            ({"Plan-Key": "p", "Plan-Step": "s", "Idempotency-Key": "k"}, "ambiguous_identity"),
        ],
    )
    def test_half_a_step_is_no_step_and_two_names_are_none(
        self, served: Served, database: str, headers: dict[str, str], code: str
    ) -> None:
        """
        Refused before anything runs.
        """
        refused = served.query(database, INSERT, ROW, headers=headers)

        assert (400, code) == (refused.status, refused.code)
        assert served.count(database) == 0


class TestScopes:
    """Whose keys are whose."""

    @pytest.mark.requirement("A28")
    def test_a_leaked_key_is_useless_to_another_tenant(self, served: Served, database: str) -> None:
        """
        The same key and plan under another tenant's token: they run there, and tell nothing of the first.
        """
        token = served.new_token("other", role="admin")
        served.query(database, INSERT, ROW, key="evt-1")
        theirs = database.replace("/demo/", "/other/")

        assert served.call("PUT", theirs, token=token).status == 201
        assert served.query(theirs, "CREATE TABLE events (id TEXT, name TEXT)", token=token).status == 200
        answer = served.query(theirs, INSERT, ["e-9", "x"], key="evt-1", token=token)
        assert (answer.status, answer.headers.get("idempotency-replayed")) == (200, None)
        assert ((seen := served.query(database, "SELECT 1", token=token)).status, seen.code) == (403, "forbidden")

    def test_a_retry_across_a_rotation_still_replays(self, served: Served, database: str) -> None:
        """
        A new secret, the same scope.
        """
        old = served.new_token("demo")
        first = served.query(database, INSERT, ROW, key="evt-1", token=old)
        with served.access() as access:
            rotated = access.rotate_token(old.split("_")[2])
        new = rotated.issued.text if rotated is not None else ""

        again = served.query(database, INSERT, ROW, key="evt-1", token=new)

        assert (first.body, "true") == (again.body, again.headers["idempotency-replayed"])

    @pytest.mark.requirement("C57")
    def test_live_and_test_never_meet(self, served: Served, database: str) -> None:
        """
        A live token on a test database is told so; a key that names the other environment is refused.
        """
        live = served.new_token("demo", environment="live")

        refused = served.query(database, "SELECT 1", token=live)
        wrong = served.query(database, INSERT, ROW, key="live:evt-1")

        assert (refused.status, refused.code) == (403, "forbidden")
        assert "test" in refused.document["detail"]
        assert (wrong.status, wrong.code) == (400, "key_invalid")


@pytest.mark.requirement("A10")
def test_the_published_contract_says_for_how_long(served: Served) -> None:
    """
    Seconds, machine-readable, without a token; and a page for every code.
    """
    contract = served.call("GET", "/.well-known/idempotency", token="")
    pages = {one["code"]: served.call("GET", f"/.well-known/idempotency/{one['code'].lower()}", token="").status
             for one in all_refusals(contract.document)}  # fmt: skip
    pages |= {code: served.call("GET", f"/.well-known/idempotency/{code}", token="").status for code in STATUSES}

    keys = served.sql_contract()

    assert (contract.status, contract.document["retainSeconds"]) == (200, 86_400)
    assert (keys["retainSeconds"], keys["afterExpiry"], keys["keyCharactersMax"]) == (86_400, "run", 200)
    assert set(pages.values()) == {200}


def test_the_client_sees_what_the_wire_says(served: Served, database: str) -> None:
    """
    Blobs and large numbers there and back; a replay is marked on the result.
    """
    _, _, _, tenant, name = database.split("/")
    with Client(served.address, token=served.token) as client:
        db = client.db(tenant, name)
        db.query(f"CREATE TABLE kept (n BIGINT, b {'BYTEA' if served.is_on_postgres else 'BLOB'})")
        written = [
            db.query("INSERT INTO kept VALUES (?, ?)", [2**62, b"\x00\xff"], idempotency_key="k") for _ in range(2)
        ]
        found = db.query("SELECT n, b FROM kept").one()

    assert [one.replayed for one in written] == [False, True]
    assert found == {"n": 2**62, "b": b"\x00\xff"}


def at_once(number: int, act: object) -> list[Heard]:
    """Many at the same instant; their answers."""
    barrier, answers = threading.Barrier(number), []

    def one(n: int) -> None:
        barrier.wait()
        answers.append(act(n))  # type: ignore[operator]

    threads = [threading.Thread(target=one, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers
