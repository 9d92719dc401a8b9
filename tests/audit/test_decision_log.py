"""Nothing is decided without a trace: what a decision leaves, and what happens if it cannot."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from audit_support import ALICE, World, decide

from onceward.audit import API, Decision, DecisionFilter, DecisionLog, Operator
from onceward.errors import (
    ConfigurationError,
    IllegalMove,
    InDoubt,
    OutcomeUnknown,
    RequestInvalid,
    StoreCorrupt,
    StoreUnavailable,
)


class TestWhatADecisionLeaves:
    """Who, when, why, and what came of it."""

    def test_a_decision_is_shown_with_everything(self, world: World, log: DecisionLog) -> None:
        """
        Actor, time on the store's clock, reason, before and after; one row for intent and outcome.
        """
        decide(log, tenant="acme", environment="live")
        [found] = log.find()

        assert (found.actor, found.via, found.reason) == ("alice (root@db1)", "cli", "the provider shows no charge")
        assert (found.action, found.subject, found.tenant) == ("record.release", "e9bb26a3a693", "acme")
        assert (found.before, found.after) == ({"state": "in_doubt"}, {"state": "released"})
        assert (found.outcome, found.error, found.environment, found.erased) == ("done", None, "live", False)
        assert found.ended_at is not None
        if world.kind == "sqlite":
            assert found.at == world.environment.wall_us()

    @pytest.mark.fault("a-decision-is-carried-out-before-it-is-written")
    def test_the_intent_is_there_before_anything_is_done(self, log: DecisionLog) -> None:
        """
        While the block runs, everybody can read what is being decided; how it ends is not known yet.
        """
        seen: list[Any] = []
        with log.deciding(Decision("record.release", "e9bb26a3a693", ALICE)):
            seen = log.find()

        assert [(one.action, one.outcome, one.actor) for one in seen] == [("record.release", None, ALICE.actor)]
        assert [one.outcome for one in log.find()] == ["done"]

    @pytest.mark.parametrize(
        ("error", "outcome", "code"),
        [
            (IllegalMove("no"), "failed", "illegal_move"),
            (StoreUnavailable("away"), "unknown", "store_unavailable"),
            (OutcomeUnknown("perhaps"), "unknown", "outcome_unknown"),
            (InDoubt("perhaps"), "unknown", "in_doubt"),
            (RuntimeError("secret-4711"), "unknown", "RuntimeError"),
            (KeyboardInterrupt(), "unknown", "KeyboardInterrupt"),
        ],
    )
    def test_a_decision_that_raised_says_what_is_known(
        self, world: World, log: DecisionLog, error: BaseException, outcome: str, code: str
    ) -> None:
        """
        Refused is failed; what may have happened is unknown. The error goes on, and its message is not kept.
        """
        with pytest.raises(type(error)), log.deciding(Decision("record.release", "e9bb", ALICE)):
            raise error
        [found] = log.find()

        assert (found.outcome, found.error, found.after) == (outcome, code, None)
        assert "secret-4711" not in world.everything()

    def test_decisions_are_found_by_what_they_are(self, log: DecisionLog) -> None:
        """
        By actor, action or group, the beginning of the subject, tenant, environment; the latest first, in pages.
        """
        bob = Operator("bob", API)
        decide(log, "record.release", "aa11", tenant="acme", environment="live")
        decide(log, "record.reconcile", "aa22", bob, tenant="acme", environment="test")
        decide(log, "tenant.quota", "tenant acme", tenant="acme")
        decide(log, "records.other", "aa33", tenant="globex", environment="live")

        def subjects(**chosen: Any) -> list[str | None]:
            return [one.subject for one in log.find(DecisionFilter(**chosen))]

        assert subjects() == ["aa33", "tenant acme", "aa22", "aa11"]
        assert subjects(actor="bob") == ["aa22"]
        assert (len(subjects(actor="alice")), len(subjects(actor=ALICE.actor)), subjects(actor="ali")) == (3, 3, [])
        assert subjects(action="record") == ["aa22", "aa11"]
        assert subjects(action="record.release") == ["aa11"]
        assert subjects(subject="aa2") == ["aa22"]
        assert subjects(tenant="acme", environment="live") == ["tenant acme", "aa11"]
        assert subjects(since_us=log.find()[0].at + 1) == []
        assert subjects(limit=2) == ["aa33", "tenant acme"]
        assert subjects(limit=2, before=log.find()[1].number) == ["aa22", "aa11"]
        assert subjects(tenant="nobody") == []

    def test_an_id_that_is_no_line_is_kept_as_a_digest(self, log: DecisionLog) -> None:
        """
        Senders choose the ids of their events: none of them keeps an operator from deciding, or breaks a table.
        """
        decide(log, subject="evt\n1")
        decide(log, subject="x" * 1000)

        assert [one.subject[:7] for one in log.find() if one.subject is not None] == ["sha256:", "sha256:"]
        assert log.verify().findings == []


class TestReasons:
    """Optional, unless the log says otherwise; for everybody who decides there."""

    @pytest.mark.fault("a-reason-is-never-required")
    def test_reasons_can_be_required(self, world: World, log: DecisionLog) -> None:
        """
        Then a decision without one is refused before anything is done, by every process. Setting it is logged.
        """
        decide(log, operator=Operator("bob", API))
        log.require_reasons(True, ALICE)
        ran = False
        without = Decision("record.release", "e9bb", Operator("bob", API))
        with world.open() as other, pytest.raises(RequestInvalid, match="need a reason"), other.deciding(without):
            ran = True
        decide(log)

        assert (ran, log.reasons_required()) == (False, True)
        assert [one.action for one in log.find()] == ["record.release", "audit.reasons", "record.release"]
        assert (log.find()[1].before, log.find()[1].after) == ({"required": False}, {"required": True})

    @pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "nul\0", "x" * 501, "\ud800", "\u2028"])
    def test_a_reason_that_cannot_be_shown_is_refused(self, log: DecisionLog, reason: str) -> None:
        """
        And nothing is decided, nor written.
        """
        ran = False
        with pytest.raises(RequestInvalid), log.deciding(Decision("a.b", "x", Operator("bob", API, reason))):
            ran = True

        assert (ran, log.find(), log.verify().findings) == (False, [], [])


class TestTheLogIsAway:
    """The log is of operators, not of operations: without it nothing is decided."""

    @pytest.mark.fault("a-decision-goes-on-without-its-log")
    def test_nothing_is_decided_without_the_log(self, log: DecisionLog) -> None:
        """
        It is refused, in words that say so, before anything is done.
        """
        log.close()
        ran = False
        refused = pytest.raises(StoreUnavailable, match="nothing was decided")
        with refused, log.deciding(Decision("record.release", "e9bb", ALICE)):
            ran = True

        assert ran is False

    def test_a_log_that_lost_its_head_takes_no_decision(self, world: World, log: DecisionLog) -> None:
        """
        A new chain would hide that the old one is gone.
        """
        decide(log)
        world.execute("DELETE FROM onceward_audit_head")
        with pytest.raises(StoreCorrupt, match="onceward_audit_head"):
            decide(log)

        assert len(log.find()) == 1
        assert [one.fault for one in log.verify().findings] == ["the log has lost its head (onceward_audit_head)"]

    @pytest.mark.fault("an-outcome-that-cannot-be-written-raises")
    def test_what_is_done_is_done(self, world: World, log: DecisionLog, caplog: pytest.LogCaptureFixture) -> None:
        """
        If only the outcome cannot be written, nobody is told that the decision failed: a token that was just made
        must reach whoever made it. It is logged, and the list says that it is not known.
        """
        raised: list[Exception] = []
        try:
            with caplog.at_level(logging.ERROR, "onceward.audit"), log.deciding(Decision("token.create", "x", ALICE)):
                log.close()
        except StoreUnavailable as error:
            raised.append(error)
        with world.open() as again:
            [found] = again.find()

        assert raised == []
        assert (found.outcome, again.is_chained) == (None, True)
        assert "decision 1 (token.create) is done, but the decision log could not be updated" in caplog.text


class TestStoresWithoutTables:
    """Redis and memory have no chain, and nobody pretends."""

    @pytest.mark.parametrize("url", ["memory://", None])
    def test_a_decision_is_logged_by_the_process(self, url: str | None, caplog: pytest.LogCaptureFixture) -> None:
        """
        As JSON, intent and outcome, at a level that shows where no logging was set up.
        """
        with caplog.at_level(logging.WARNING, "onceward.audit"), DecisionLog.open(url) as log:
            decide(log)
            with pytest.raises(ConfigurationError, match="no tables"):
                log.find()
            with pytest.raises(RequestInvalid):
                decide(log, operator=Operator("two\nlines", API))
        told = [json.loads(one.getMessage()) for one in caplog.records]

        assert log.is_chained is False
        assert log.erase_tenant("acme", ALICE) == 0
        assert [one.get("outcome") for one in told] == [None, "done"]
        assert {one["actor"] for one in told} == {ALICE.actor}
        assert (told[0]["before"], told[1]["after"]) == ({"state": "in_doubt"}, {"state": "released"})


def test_where_there_is_no_log_reading_makes_none(tmp_path: Path) -> None:
    """
    Looking says that there is none, and what makes it.
    """
    with pytest.raises(ConfigurationError, match="the first decision of an operator makes them"):
        DecisionLog.open(f"sqlite:///{tmp_path}/agent.db", create=False)

    assert list(tmp_path.iterdir()) == []
