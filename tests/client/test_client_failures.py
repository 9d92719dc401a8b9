"""What a client does when something goes wrong on the way: a real service, and somebody in between who spoils it."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from middleman import Middleman
from own_client_support import INSERT, ROW, TABLE, Maker

import onceward
from onceward import ConfigurationError, OncewardError, OutcomeUnknown, Retry, stop_of
from onceward.client import DatabaseUnknown, NameInvalid, SqlError, SqlKind
from onceward.client.responses import error_from_response
from onceward.client.service_call import ServiceRequest
from onceward.errors import Forbidden, RateLimitError, ServiceUnreachable, TokenInvalid
from onceward.retry import StopReason
from service.service_support import Served

pytestmark = pytest.mark.dose(1, of="client_of")

QUICK = Retry(attempts=3, base=0.001, cap=0.002)
POST, KEYED = ServiceRequest("POST", "/", {}, b""), ServiceRequest("POST", "/", {"Idempotency-Key": "k"}, b"")

CODES = sorted(
    {one.code for one in vars(onceward).values() if isinstance(one, type) and issubclass(one, OncewardError)}
    | {"never_heard_of", ""}
)


@pytest.fixture
def between(served: Served) -> Any:
    """Somebody in between."""
    with Middleman(served.address) as middleman:
        yield middleman


@pytest.fixture
def db(client_of: Maker, served: Served, between: Middleman, name: str) -> Any:
    """A database with a table, reached through somebody in between."""
    path = f"/v1/db/demo/{name}"
    served.call("PUT", path)
    served.query(path, TABLE)
    return client_of(between.address, token=served.token, retry=QUICK).db("demo", name)


class TestRetries:
    """Sent again by the retry layer: the same bytes, or not at all."""

    @pytest.mark.parametrize(
        "spoiled", ["lose answer", "half answer", "cut", (503, {}, b"busy"), (502, {}, b"<html>bad gateway</html>")]
    )
    def test_a_keyed_statement_is_sent_again_with_the_same_bytes(
        self, db: Any, between: Middleman, spoiled: Any
    ) -> None:
        """
        Whatever is lost, and whether or not it had arrived: one row, and every request is equal to the first.
        """
        between.spoil = [spoiled]
        found = db.query(INSERT, ROW, idempotency_key="evt-1")

        assert found.rows_written == 1
        assert (spoiled in ("lose answer", "half answer")) == found.replayed
        assert len(between.sent) == 2
        assert len(set(between.sent)) == 1
        assert db.query("SELECT id FROM events").rows == [["e-1"]]

    @pytest.mark.parametrize("spoiled", ["lose answer", (503, {}, b"busy")])
    def test_a_statement_without_a_key_is_not_sent_again_if_it_may_have_run(
        self, db: Any, between: Middleman, spoiled: Any
    ) -> None:
        """
        Nobody knows whether it ran: that is said, and nothing is repeated.
        """
        between.spoil = [spoiled]

        with pytest.raises(OutcomeUnknown) as caught:
            db.query(INSERT, ROW)
        stop = stop_of(caught.value)
        assert len(between.sent) == 1
        assert (stop.reason, stop.attempts) == (StopReason.NO_KEY, 1) if stop else False

    def test_a_step_and_a_read_are_sent_again(self, db: Any, between: Middleman) -> None:
        """
        A step has a name, and looking changes nothing.
        """
        between.spoil = ["lose answer", "", "lose answer"]
        seeded = db.plan("p-1").query("seed", INSERT, ROW)
        tables = db.tables()

        assert (seeded.rows_written, seeded.replayed) == (1, True)
        assert [one["name"] for one in tables] == ["events"]
        assert [sum(1 for one in between.passed if one.method == method) for method in ("POST", "GET")] == [2, 2]

    @pytest.mark.requirement("A37", "A38")
    def test_a_429_that_is_not_retried_any_more_is_a_rate_limit_error(self, db: Any, between: Middleman) -> None:
        """
        With the wait as a number, as the service said it; typed, and importable from the root.
        """
        between.spoil = [(429, {"retry-after": "7"}, b'{"code": "rate_limited", "detail": "slowly"}')] * 3
        with onceward.deadline(2), pytest.raises(RateLimitError) as caught:
            db.query(INSERT, ROW, idempotency_key="evt-1")

        assert (
            caught.value.retry_after_seconds,
            caught.value.retry,
            str(caught.value),
        ) == (7.0, "same-key", "slowly")
        assert caught.value.retry_at is not None
        assert len(between.sent) == 1

    def test_a_service_that_is_away_is_unreachable_and_may_be_asked_again(
        self, client_of: Maker, served: Served
    ) -> None:
        """
        One error class whichever HTTP library is there; it did not arrive, so this holds without a key, too.
        """
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        db = client_of(f"http://127.0.0.1:{port}", token=served.token, retry=QUICK).db("demo", "shop")

        with pytest.raises(ServiceUnreachable) as caught:
            db.query(INSERT, ROW)
        stop = stop_of(caught.value)
        assert caught.value.retry == "same-key"
        assert (stop.attempts if stop else 0) == 3

    def test_a_keyed_statement_whose_answers_are_all_lost_may_be_sent_again(self, db: Any, between: Middleman) -> None:
        """
        The policy ends, the promise does not: the same call, later, is told what happened the first time.
        """
        between.spoil = ["lose answer"] * 3
        with pytest.raises(ServiceUnreachable):
            db.query(INSERT, ROW, idempotency_key="evt-1")

        assert db.query(INSERT, ROW, idempotency_key="evt-1").replayed
        assert len(set(between.sent)) == 1


class TestStrangers:
    """An address that is no service of ours."""

    @pytest.mark.parametrize(
        "answer",
        [
            (200, {}, b"<html>sign in to this network</html>"),
            (200, {}, b'{"ok": true}'),
            (200, {}, b"[]"),
            (302, {"location": "http://127.0.0.1:1/"}, b""),
        ],
    )
    def test_an_answer_of_somebody_else_is_told_as_such(self, db: Any, between: Middleman, answer: Any) -> None:
        """
        No KeyError, no redirect that takes the token elsewhere.
        """
        between.spoil = [answer]

        with pytest.raises(ConfigurationError, match="onceward service"):
            db.query(INSERT, ROW, idempotency_key="evt-1")

    @pytest.mark.parametrize(
        "url", ["shop.db", "ftp://host", "https://", "https://host/?a=1", "https://me:secret@host", "postgresql://h/db"]
    )
    def test_what_cannot_be_an_address_is_refused(self, client_of: Maker, served: Served, url: str) -> None:
        """
        And a password in it is not repeated.
        """
        with pytest.raises(ConfigurationError) as caught:
            client_of(url, token=served.token)
        assert "secret" not in str(caught.value)


class TestRefusals:
    """A refusal of the service is the error that it would be in Python."""

    def test_refusals_of_a_real_service(self, client_of: Maker, served: Served, name: str) -> None:
        """
        Unknown database, bad name, somebody else's namespace, a token that may only read, one that was revoked.
        """
        writer = client_of(served.address, token=served.token)
        reader = client_of(served.address, token=served.new_token(role="read"))
        lost = served.new_token()
        with served.access() as access:
            access.revoke_token(lost.split("_")[2])
        writer.db("demo", name).create()

        with pytest.raises(DatabaseUnknown):
            writer.db("demo", "nowhere").query("SELECT 1")
        with pytest.raises(NameInvalid):
            writer.db("demo", "No Where").query("SELECT 1")
        with pytest.raises(Forbidden):
            writer.db("acme", name).query("SELECT 1")
        with pytest.raises(SqlError) as caught:
            reader.db("demo", name).query(TABLE)
        with pytest.raises(TokenInvalid):
            client_of(served.address, token=lost).db("demo", name).query("SELECT 1")
        assert caught.value.kind == SqlKind.READONLY

    @pytest.mark.parametrize("code", CODES)
    def test_every_code_becomes_an_error(self, code: str) -> None:
        """
        Of its own class where a message is all that it needs, and with its code in any case.
        """
        document = {"code": code, "detail": "words", "retryAfterSeconds": 2}
        error = error_from_response(KEYED, 409, {}, json.dumps(document).encode())

        assert "words" in str(error)
        assert (code or "error") == error.code
        assert error.retry_after_seconds == 2.0

    @pytest.mark.parametrize(
        ("status", "outgoing", "kind", "retry"),
        [
            (500, KEYED, OutcomeUnknown, "same-key"),
            (502, POST, OutcomeUnknown, "never"),
            (429, POST, RateLimitError, "same-key"),
            (404, POST, OncewardError, "never"),
            (202, KEYED, onceward.InFlight, "same-key"),
        ],
    )
    @pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"code": 5}', b"\xff"])
    def test_refusals_that_say_nothing_are_judged_by_their_status(
        self, status: int, outgoing: ServiceRequest, kind: type[OncewardError], retry: str, body: bytes
    ) -> None:
        """
        From a proxy, say: with a key it is safe to send it again, without one nobody knows.
        """
        error = error_from_response(outgoing, status, {"retry-after": "soon"}, body)

        assert (kind, retry, None) == (type(error), error.retry, error.retry_after_seconds)
