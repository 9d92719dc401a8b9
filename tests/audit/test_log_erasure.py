"""An erased tenant is gone from the log as well, and the chain holds."""

from __future__ import annotations

import pytest
from audit_support import World, decide

from onceward.audit import API, Decision, DecisionFilter, DecisionLog, Operator
from onceward.runtime import failpoints

TOKEN = Operator("token k3v9x2m8q4ab", API, "we asked Jane Doe of acme")
CLERK = Operator("bob (root@db1)", "cli", "acme owes us")
GDPR = Operator("carol (root@db1)", "cli", "request 4711")
WORDS = ("acme", "k3v9x2m8q4ab", "Jane Doe", "secret-digest", "owes us")


@pytest.fixture
def about_acme(log: DecisionLog) -> DecisionLog:
    """Decisions about two tenants, of their own tokens and of operators."""
    decide(log, subject="secret-digest", operator=TOKEN, tenant="acme", environment="live")
    decide(log, "tenant.quota", "tenant acme", CLERK, tenant="acme")
    decide(log, subject="ff00", operator=Operator("token zzz", API), tenant="acme-2", environment="live")
    return log


def erase(log: DecisionLog) -> int:
    """What `onceward tenant erase` does here."""
    with log.deciding(Decision("tenant.erase", "tenant acme", GDPR, tenant="acme", before={"tokens": 3})) as made:
        count = log.erase_tenant("acme", GDPR)
        made.after = {"records": 17}
    return count


@pytest.mark.fault("an-erased-tenant-stays-in-the-log")
@pytest.mark.fault("an-erasure-breaks-the-chain")
def test_nothing_about_the_tenant_is_left_and_the_chain_holds(world: World, about_acme: DecisionLog) -> None:
    """
    Neither name, nor token, nor reason, nor subject, anywhere in the tables; also not as a digest that could be tried
    out, since its salt is gone. Others' texts stay. The walk finds nothing, and the head is the one that was noted.
    """
    noted = about_acme.verify().head
    assert all(word in world.everything() for word in WORDS)
    assert erase(about_acme) > 5
    left = world.everything().replace("acme-2", "")

    assert [word for word in WORDS if word in left] == []
    assert about_acme.verify(noted).findings == []
    assert about_acme.verify().erased == 5
    assert [one.subject for one in about_acme.find(DecisionFilter(tenant="acme-2"))] == ["ff00"]
    assert about_acme.find(DecisionFilter(tenant="acme")) == []


def test_who_decided_stays_known_unless_it_was_the_tenant(about_acme: DecisionLog) -> None:
    """
    An operator answers for what it did about somebody who is gone; of the erasure itself the reason stays, too, and
    its counts. A token of the tenant's own is the tenant's.
    """
    erase(about_acme)
    erasure, _, quota, release = about_acme.find()

    assert (erasure.actor, erasure.reason, erasure.after) == (GDPR.actor, "request 4711", {"records": 17})
    assert (erasure.subject, erasure.before, erasure.tenant, erasure.outcome) == (None, None, None, "done")
    assert (quota.actor, quota.action, quota.reason, quota.after) == (CLERK.actor, "tenant.quota", None, None)
    assert (release.actor, release.subject, release.outcome, release.erased) == (None, None, "done", True)


@pytest.mark.fault("a-late-outcome-tells-of-an-erased-tenant")
def test_a_decision_that_ends_after_the_erasure_leaves_no_text(world: World, about_acme: DecisionLog) -> None:
    """
    It was begun before and ends after: that it ended is written, and not what it says about the tenant.
    """
    with about_acme.deciding(Decision("tenant.quota", "tenant acme", CLERK, tenant="acme")) as made:
        erase(about_acme)
        made.after = {"scope": "live:acme"}
    late = about_acme.find()[1]

    assert (late.action, late.outcome, late.after) == ("tenant.quota", "done", None)
    assert "acme" not in world.everything().replace("acme-2", "")
    assert about_acme.verify().findings == []


def test_a_tenant_of_the_same_name_is_another(about_acme: DecisionLog) -> None:
    """
    What is decided about it afterwards is not connected with what was before.
    """
    erase(about_acme)
    decide(about_acme, "tenant.create", "tenant acme", tenant="acme")

    assert [one.action for one in about_acme.find(DecisionFilter(tenant="acme"))] == ["tenant.create"]
    assert about_acme.verify().findings == []


@pytest.mark.fault("a-second-erasure-looks-like-tampering")
def test_what_was_decided_in_the_middle_of_an_erasure_goes_as_well(world: World, about_acme: DecisionLog) -> None:
    """
    Another operator decided something about the tenant when its texts were gone already, and before the erasure had
    ended: erasing again removes that, too, and the walk knows why.
    """
    with about_acme.deciding(Decision("tenant.erase", "tenant acme", GDPR, tenant="acme")):
        about_acme.erase_tenant("acme", GDPR)
        decide(about_acme, "tenant.quota", "tenant acme", CLERK, tenant="acme")
        about_acme.erase_tenant("acme", GDPR)

    assert about_acme.verify().findings == []
    assert "acme" not in world.everything().replace("acme-2", "")


@pytest.mark.fault("a-text-may-be-missing-without-an-erasure")
def test_a_text_that_was_only_deleted_is_missed(world: World, about_acme: DecisionLog) -> None:
    """
    Without an erasure of its tenant in the chain, a missing text is a broken entry; and an erasure does not cover the
    parts that it leaves, such as who it was.
    """
    world.execute("DELETE FROM onceward_audit_texts WHERE number = 3 AND part = 'reason'")
    fault = "is missing, although its tenant was not erased"
    assert about_acme.verify().findings == [(3, f"its reason {fault}")]
    erase(about_acme)
    assert about_acme.verify().findings == []
    world.execute("DELETE FROM onceward_audit_texts WHERE number = 3 AND part = 'actor'")

    assert about_acme.verify().findings == [(3, f"its actor {fault}")]


def test_an_erasure_that_was_cut_off_goes_on(world: World, about_acme: DecisionLog) -> None:
    """
    Whatever it had done stands, the walk is content meanwhile, and the same again brings it to its end. Erasing what
    is not there, or was erased before, does no harm.
    """

    class Cut(Exception):
        pass

    def cut() -> None:
        raise Cut

    for at in ("audit.erase.before", "audit.erase.written", "audit.erase.after"):
        failpoints.arm(at, cut, skip=0)
        try:
            with pytest.raises(Cut):
                erase(about_acme)
        finally:
            failpoints.disarm()
        assert about_acme.verify().findings == []
    erase(about_acme)

    assert "acme" not in world.everything().replace("acme-2", "")
    assert (erase(about_acme) > 0, about_acme.erase_tenant("nobody", GDPR)) == (True, 0)
    assert about_acme.verify().findings == []
