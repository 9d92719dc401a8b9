"""Refusals: a stable code, what is safe to do next, and nothing that is for operators only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward import ConfigurationError, InDoubt, InFlight, KeyReused, OncewardError, Reply, StoreUnavailable
from onceward._core import errors
from onceward.errors import KeyInvalid, RateLimitError, RequestInvalid, ScopeMissing
from onceward.http import PROFILES, Route, profile
from onceward.http.server.problems import STATUSES, pending_response, problem_response
from onceward.http.server.published_contract import (
    contract_in_force,
    contract_of,
    contract_response,
    error_page,
)
from onceward.http.server.routes import Routes

# The codes of the contract, and a status for each; the rest is documented in the reference.
SETTLED = {
    "key_missing": 400,
    "key_invalid": 400,
    "plan_incomplete": 400,
    "ambiguous_identity": 400,
    "in_flight": 409,
    "in_doubt": 409,
    "not_replayable": 409,
    "expired": 410,
    "key_reused": 422,
    "rate_limited": 429,
    "store_unavailable": 503,
}
CLASSES = {
    one.code: one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, OncewardError) and one is not OncewardError
}


@pytest.mark.fault("what-the-store-forgot-is-a-page-of-its-own")
def test_what_the_store_forgot_is_in_doubt_for_whoever_asks_over_http() -> None:
    """
    409 `in_doubt`, never to be repeated, in the words of every doubt: why is for the log.
    """
    reply, document = told(errors.StoreForgot("the store lost the claim of live:acme"))
    _, doubt = told(errors.InDoubt("somebody must look"))

    assert (reply.status, document["code"], document["retry"]) == (409, "in_doubt", "never")
    assert doubt == document


def made(kind: type[OncewardError]) -> OncewardError:
    match kind.__name__:
        case "RecordedFailure":
            return errors.RecordedFailure("ValueError", "the password is hunter2")
        case "OutOfOrder":
            return errors.OutOfOrder(1, 2)
    return kind("for operators: host db-7, scope live:acme, run onceward records show")


def told(error: OncewardError, **changes: Any) -> tuple[Reply, dict[str, Any]]:
    reply = problem_response(error, profile("default", **changes))
    return reply, json.loads(reply.body)


@pytest.mark.parametrize("code", sorted(set(CLASSES) - {"store_forgot"}))  # On the wire it is in_doubt: see above.
def test_every_error_has_an_answer_that_says_what_to_do(code: str) -> None:
    """
    `application/problem+json` with status, code and retry advice, a title for people and a link to a page that exists.
    """
    kind = CLASSES[code]
    reply, document = told(made(kind))

    assert {**STATUSES, **SETTLED}.get(code, 500) == reply.status == document["status"]
    assert (code, kind.retry.value) == (document["code"], document["retry"])
    assert reply.header("content-type") == "application/problem+json"
    assert reply.header("cache-control") == "no-store"
    assert reply.header("link") == f'<{document["type"]}>; rel="help"'
    assert document["title"]
    assert (document["retry"] == "same-key") == (reply.header("retry-after") is not None)
    page = error_page(document["type"].rpartition("/")[2], profile())
    assert page is not None
    assert kind.retry.value.encode() in page.body


@pytest.mark.parametrize("code", sorted(CLASSES))
def test_what_is_for_operators_stays_in_the_log(code: str) -> None:
    """
    Scopes, hosts, commands, what an exception said: only codes that speak of the request itself show their message.
    """
    speaks = {"key_missing", "key_invalid", "plan_incomplete", "ambiguous_identity"}
    speaks |= {"request_invalid", "upload_timeout", "body_too_large", "signature_invalid", "event_invalid"}

    reply, _ = told(made(CLASSES[code]))

    shown = b"db-7" in reply.body or b"live:acme" in reply.body or b"hunter2" in reply.body
    assert (code in speaks) == shown


def test_a_500_says_no_more_than_that_it_is_our_fault() -> None:
    """
    How to mend it is for whoever runs the service.
    """
    for error in (ScopeMissing(), ConfigurationError("the gate was declared wrongly")):
        _, document = told(error)
        assert document["title"].startswith("Something is wrong on the server")
        assert "scope=" not in json.dumps(document)


@pytest.mark.parametrize(
    ("seconds", "header", "member"),
    [(None, "1", 1.0), (0.2, "1", 0.2), (1.0, "1", 1.0), (1.001, "2", 1.001), (59.5, "60", 59.5)],
)
def test_retry_after_is_never_too_early(seconds: float | None, header: str, member: float) -> None:
    """
    Whole seconds for HTTP, rounded up; as exact as it is known in the document.
    """
    reply, document = told(InFlight(retry_after_seconds=seconds))

    assert (header, member) == (reply.header("retry-after"), document["retryAfterSeconds"])


def test_a_server_that_asks_for_a_pause_is_passed_on() -> None:
    """
    429, with the other side's wait.
    """
    reply, _ = told(RateLimitError(retry_after_seconds=30))

    assert (reply.status, reply.header("retry-after")) == (429, "30")


@pytest.mark.parametrize(("name", "status"), [("default", 422), ("ietf", 422), ("stripe", 400), ("pacspace", 409)])
def test_the_profile_says_what_reuse_is_answered_with(name: str, status: int) -> None:
    """
    The code stays the same: a client decides by it.
    """
    reply = problem_response(KeyReused(), profile(name))

    assert (status, "key_reused") == (reply.status, json.loads(reply.body)["code"])


def test_the_202_of_accept_has_the_profiles_code() -> None:
    """
    It is polled, and never taken for the answer.
    """
    reply = pending_response(profile("pacspace"), None)
    document = json.loads(reply.body)

    assert (reply.status, document["code"], document["retry"]) == (202, "IDEMPOTENCY_PENDING", "same-key")
    assert reply.header("retry-after") == "1"
    assert error_page("idempotency_pending", profile("pacspace")) is not None


def test_without_a_well_known_address_nothing_links_there() -> None:
    """
    A link that leads nowhere is worse than none.
    """
    reply = problem_response(InDoubt(), profile(), pages=None)

    assert (json.loads(reply.body)["type"], reply.header("link")) == ("about:blank", None)


def test_what_a_refusal_quotes_cannot_leave_its_text() -> None:
    """
    Whatever it says: the body is JSON in ASCII, and headers never carry it.
    """
    reply, document = told(KeyInvalid('"},"code":"fine"\r\nSet-Cookie: x=1\x1b[31m\u202e'))

    assert document["code"] == "key_invalid"
    assert reply.body.isascii()
    assert not any("Set-Cookie" in value for _, value in reply.headers)


class TestWhatIsPublished:
    """`/.well-known/idempotency`."""

    def document(self, name: str, *routes: Route, gate: Any, **changes: Any) -> dict[str, Any]:
        made = Routes(profile(name, **changes), routes, gate.agreed)
        reply = contract_response(made.default.profile, made.default.terms, made.others())
        assert reply.header("content-type") == "application/json"
        document: dict[str, Any] = json.loads(reply.body)
        return document

    @pytest.fixture
    def gate(self) -> Any:
        from onceward import Gate

        with Gate("memory://", scope="test:acme") as gate:
            yield gate

    @pytest.mark.parametrize("name", PROFILES)
    def test_a_client_reads_everything_it_needs(self, name: str, gate: Any) -> None:
        """
        Headers, lengths, what happens while the first request runs, and for how long answers are kept, in seconds.
        """
        document = self.document(name, gate=gate)
        chosen = profile(name)

        assert name == document["name"]
        assert list(chosen.methods) == document["methods"]
        assert ("Idempotency-Key", chosen.key_characters_max) == (document["keyHeader"], document["keyCharactersMax"])
        assert (chosen.in_flight, chosen.remember) == (document["inFlight"], document["remember"])
        assert document["retainSeconds"] == 86_400
        assert (0 if chosen.after_expiry == "run" else 2_592_000) == document["tombstoneSeconds"]
        assert (30 if chosen.in_flight == "wait" else 0) == document["waitSeconds"]
        codes = {one["code"]: one["status"] for one in document["refusals"]}
        assert chosen.mismatch_status == codes["key_reused"]
        assert (202 if name == "pacspace" else None) == codes.get("IDEMPOTENCY_PENDING")

    def test_routes_say_what_is_otherwise_there(self, gate: Any) -> None:
        """
        Durations in seconds there, too; what is the same is not repeated, and what is nobody's business is not said.
        """
        from datetime import timedelta

        document = self.document(
            "default",
            Route("/charges", require_key=True, retain=timedelta(days=2), lease=5, guarantee="keyed", keyed_for=60),
            Route("/internal/{rest:path}", skip=True),
            gate=gate,
        )

        assert document["routes"] == [
            {"path": "/charges", "requireKey": True, "retainSeconds": 172_800, "guarantee": "keyed"},
            {"path": "/internal/{rest:path}", "skip": True},
        ]

    def test_a_rule_is_published_as_one(self, gate: Any) -> None:
        """
        A function cannot be printed, and is not.
        """
        assert self.document("default", gate=gate, remember=lambda status: status < 500)["remember"] == "by rule"

    def test_nothing_of_a_probe_or_a_lease_is_published(self, gate: Any) -> None:
        """
        Callers cannot use it.
        """
        document = self.document("default", gate=gate)

        assert not {"probe", "lease", "leaseMax", "memoryBytesMax", "keyedFor"} & document.keys()
        assert contract_in_force(profile(), gate.agreed()) == {**contract_of(profile(), gate.agreed()), "routes": []}

    def test_an_unknown_page_is_nobodys(self) -> None:
        """
        It is left to the application, and nothing of the address is shown.
        """
        assert None is error_page("<script>", profile())
        assert None is error_page("", profile())

    def test_a_page_cannot_run_anything(self) -> None:
        """
        A policy without scripts, whatever a code is called.
        """
        page = error_page("in_doubt", profile(), contract="/'><script>")
        assert page is not None

        assert "default-src 'none'" in (page.header("content-security-policy") or "")
        assert b"<script>" not in page.body


def test_the_statuses_of_the_contract_are_kept() -> None:
    """
    The table in the contract, line by line.
    """
    assert {code: STATUSES[code] for code in SETTLED} == SETTLED
    assert {RequestInvalid.code, StoreUnavailable.code} <= STATUSES.keys() <= CLASSES.keys()
