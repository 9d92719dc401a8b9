"""Decisions over HTTP leave a trace, and a tenant sees those about itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_support import Served

from onceward import Gate
from onceward.audit import CLI, Decision, DecisionFilter, DecisionLog, DecisionView, Operator
from onceward.service.settings import Settings, store_url_of


def url_of(served: Served) -> str:
    return store_url_of(Settings(folder=str(served.folder)))


def logged(served: Served, **chosen: Any) -> list[DecisionView]:
    """What stands in the log."""
    with DecisionLog.open(url_of(served)) as log:
        return log.find(DecisionFilter(**chosen))


def doubted(served: Served, key: str, scope: str = "test:demo") -> str:
    """The id of a record of a tenant that is in doubt."""

    def boom() -> None:
        raise OSError("cut off")

    with Gate(url_of(served), scope=scope) as gate:
        with pytest.raises(OSError, match="cut off"):
            gate.run(key, boom)
        found = gate.records.get(key)
    assert found is not None
    return found.id


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """A service of the test's own, with a log of its own."""
    service = Served.started(tmp_path)
    try:
        yield service
    finally:
        service.stop()


def token_id(token: str) -> str:
    return token.split("_")[2]


@pytest.mark.fault("the-api-decides-without-a-trace")
def test_a_decision_over_http_is_logged_with_the_tokens_id(served: Served) -> None:
    """
    Both endpoints, with the token's id (never the secret), the reason, and what was before and after; the tenant's
    admin sees it.
    """
    first, second = doubted(served, "logged-1"), doubted(served, "logged-2")
    said = {"result": {"id": "ch_1"}, "reason": "the provider has it"}
    decided = served.call("POST", f"/v1/records/{first}/reconcile", said)
    released = served.call("POST", f"/v1/records/{second}/release", {"reason": "not there"})
    seen = served.call("GET", "/v1/decisions?limit=2").document["decisions"]
    actor = f"token {token_id(served.token)}"

    assert (decided.status, released.status) == (200, 200)
    assert [(one.action, one.actor, one.via, one.reason) for one in logged(served, tenant="demo", limit=2)] == [
        ("record.release", actor, "api", "not there"),
        ("record.reconcile", actor, "api", "the provider has it"),
    ]
    assert [(one["action"], one["actor"], one["subject"], one["outcome"]) for one in seen] == [
        ("record.release", actor, second, "done"),
        ("record.reconcile", actor, first, "done"),
    ]
    assert (seen[1]["before"]["state"], seen[1]["after"]["state"]) == ("in_doubt", "settled")
    assert "ch_1" not in str(seen)
    assert not any(key in one for one in seen for key in ("number", "hash"))


def test_a_refused_decision_is_logged_as_failed(served: Served) -> None:
    """
    With the error's code.
    """
    id = doubted(served, "refused-1")
    refused = served.call("POST", f"/v1/records/{id}/release", {"fence": 1})
    [found] = served.call("GET", "/v1/decisions?limit=1&action=record").document["decisions"]

    assert (refused.status, found["subject"]) == (409, id)
    assert (found["outcome"], found["error"]) == ("failed", refused.code)


@pytest.mark.fault("a-tenant-sees-the-decisions-of-others")
@pytest.mark.fault("a-tenant-learns-who-runs-the-service")
def test_a_tenant_sees_its_own_decisions_and_nobody_else(served: Served) -> None:
    """
    Not another tenant's, not those of the other environment; an operator's without name, machine and reason. Ids do
    not count what others decide, and another tenant's id is no place to go on from.
    """
    mine = served.new_token("seen-a", role="admin")
    theirs = served.new_token("seen-b", role="admin")
    clerk = Operator("bob (root@db1)", CLI, "they owe us")
    with DecisionLog.open(url_of(served)) as log:
        for subject, tenant, environment in (
            ("one", "seen-a", None), ("two", "seen-b", None), ("three", "seen-a", "live"), ("four", "seen-a", "test"),
        ):  # fmt: skip
            with log.deciding(Decision("tenant.quota", subject, clerk, tenant, environment)) as made:
                made.after = {"quotaRecords": 5}
        with log.deciding(Decision("source.add", "crm", clerk, "seen-a", before={"handler": "our.code:crm"})):
            pass
    source, *found = served.call("GET", "/v1/decisions", token=mine).document["decisions"]
    other = served.call("GET", "/v1/decisions", token=theirs).document["decisions"]
    environment = found[0]["environment"]
    wrong = served.call("GET", f"/v1/decisions?after={other[0]['id']}", token=mine)

    assert (source["subject"], source["before"], source["after"]) == ("crm", None, None)
    assert [one["subject"] for one in other] == ["two"]
    assert [one["subject"] for one in found] == [{"live": "three", "test": "four"}[environment], "one"]
    assert {(one["actor"], one["reason"], one["via"]) for one in found} == {("operator", None, "cli")}
    assert (wrong.status, wrong.code) == (400, "request_invalid")


def test_pages_go_on_where_the_last_one_ended(own: Served) -> None:
    """
    The first tenant and its token are decisions of the service's own. Every page but the last says where to go on.
    """
    for number in range(3):
        own.call("POST", f"/v1/records/{doubted(own, f'key-{number}')}/release", {})
    seen: list[Any] = []
    after = ""
    while after is not None:
        page = own.call("GET", f"/v1/decisions?limit=2{after and f'&after={after}'}").document
        seen += page["decisions"]
        after = page["after"]

    assert [one["action"] for one in seen] == ["record.release"] * 3 + ["token.create", "tenant.create"]
    assert [one["actor"] for one in seen[3:]] == ["operator", "operator"]
    assert logged(own, action="token.create")[0].actor == "onceward serve"
    with DecisionLog.open(url_of(own)) as log:
        assert log.verify().findings == []


@pytest.mark.parametrize(
    "path",
    [
        "?limit=0",
        "?limit=101",
        "?after=1",
        "?after=dc_",
        f"?after=dc_{'0' * 32}",
        "?action=a%00",
        "?action=A",
        "?action=",
    ],
)
def test_a_malformed_question_is_refused(served: Served, path: str) -> None:
    """
    With 400 and a code.
    """
    heard = served.call("GET", f"/v1/decisions{path}")

    assert (heard.status, heard.code) == (400, "request_invalid")


@pytest.mark.parametrize("role", ["read", "write"])
def test_only_admins_see_decisions(served: Served, role: str) -> None:
    """
    403 for the others.
    """
    assert served.call("GET", "/v1/decisions", token=served.new_token("demo", role=role)).status == 403


def test_a_reason_that_cannot_be_shown_is_refused_and_nothing_is_decided(served: Served) -> None:
    """
    Control characters, too long, not a text: 400.
    """
    id = doubted(served, "reasons-1")
    for reason in ("two\nlines", "x" * 501, "", 17, ["x"]):
        heard = served.call("POST", f"/v1/records/{id}/release", {"reason": reason})
        assert (heard.status, heard.code) == (400, "request_invalid"), reason

    assert served.call("GET", f"/v1/records/{id}").document["state"] == "in_doubt"


def test_required_reasons_are_required_over_http(own: Served) -> None:
    """
    A request without one is a 400 that says so, and nothing is decided.
    """
    id = doubted(own, "required-1")
    with DecisionLog.open(url_of(own)) as log:
        log.require_reasons(True, Operator("alice", CLI, "policy"))
    without = own.call("POST", f"/v1/records/{id}/release", {})

    assert (without.status, without.code) == (400, "request_invalid")
    assert "reason" in without.document["detail"]
    assert own.call("GET", f"/v1/records/{id}").document["state"] == "in_doubt"
    assert own.call("POST", f"/v1/records/{id}/release", {"reason": "checked"}).status == 200


@pytest.mark.fault("a-decision-goes-on-without-its-log")
def test_nothing_is_decided_while_the_log_cannot_be_written(tmp_path: Path) -> None:
    """
    Somebody holds the log's file: 503, to be sent again, and the record is as it was. Then it works.
    """
    service = Served.started(tmp_path, "--store", f"sqlite:///{tmp_path}/records.db?busy=0.1")
    try:
        id = doubted(service, "held-1")
        holder = sqlite3.connect(tmp_path / "records.audit.db")
        holder.execute("BEGIN IMMEDIATE")
        refused = service.call("POST", f"/v1/records/{id}/release", {})
        state = service.call("GET", f"/v1/records/{id}").document["state"]
        holder.close()
        decided = service.call("POST", f"/v1/records/{id}/release", {})
    finally:
        service.stop()

    assert (refused.status, state) == (503, "in_doubt")
    assert decided.status == 200
