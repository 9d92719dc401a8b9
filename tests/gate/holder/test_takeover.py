"""What a dead process has claimed: in doubt at once, run at once, or waited for. On every store, in both colours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from holder_support import LEASE, Desk, Elsewhere, Gone, Nameless, held_elsewhere, this_process

from onceward import NOT_FOUND, Found, Gate, InDoubt, InFlight, KeyReused, Operation, OwnershipLost
from onceward._core.record import Claimant, Record, Start, Write, claim
from onceward.gate import Returned
from onceward.gate.held_operation import HeldOperation
from onceward.runtime.environment import REAL

RESTARTS = 6


def unasked(operation: Operation) -> Any:
    """A probe that must not be asked."""
    raise AssertionError("asked")


@pytest.mark.parametrize("guarantee", ["keyed", "repeatable"])
@pytest.mark.fault("the-dead-are-waited-for")
def test_what_may_run_again_runs_at_once(desk: Desk, guarantee: Any) -> None:
    """
    Keyed and repeatable: nobody waits an hour for a process that is dead.
    """
    desk.left(guarantee=guarantee)
    gate = desk.gate()

    assert desk.hear(gate, guarantee=guarantee) == "done"
    assert (desk.runs, desk.do(gate.records.get("k")).attempt) == (["done"], 2)


@pytest.mark.fault("a-dead-keyed-claim-leaves-no-doubt")
def test_keyed_is_sent_again_under_the_same_key_and_in_doubt_until_it_settles(desk: Desk) -> None:
    """
    The first send may have arrived: what is sent again has the same downstream key, and doubt is kept meanwhile.
    """
    first = desk.left(guarantee="keyed").operation
    seen: list[Any] = []

    def again(operation: Operation) -> str:
        seen.append((operation.downstream_key(), operation.fence > first.fence, bool(operation.record.doubt)))
        return "done"

    async def awaiting(operation: Operation) -> str:
        return again(operation)

    desk.do(desk.gate().run("k", awaiting if desk.awaits else again, guarantee="keyed"))

    assert [(first.downstream_key(), True, True)] == seen


@pytest.mark.fault("the-dead-are-waited-for")
@pytest.mark.fault("a-dead-holders-doubt-is-not-stored")
def test_blind_is_in_doubt_at_once_and_everybody_can_see_it(desk: Desk) -> None:
    """
    It is stored, so that other hosts see it, with who left it; and can be decided at once.
    """
    desk.left()
    gate = desk.gate()
    heard = desk.hear(gate)
    found = desk.do(gate.records.get("k"))

    assert (InDoubt, []) == (type(heard), desk.runs)
    assert f"process {this_process().pid} on {this_process().host}" in str(heard)
    assert ("in_doubt", this_process().pid) == (found.state, found.holder.pid)
    assert [one.state for one in desk.do(gate.records.in_doubt())] == ["in_doubt"]
    desk.do(gate.reconcile("k", Found("it did"), fence=found.fence))
    assert desk.hear(gate) == "it did"


def test_a_dead_holders_operation_can_be_reconciled_before_anybody_asked_for_it(desk: Desk) -> None:
    """
    An operator need not wait for the lease, either; the key is free then, and nothing stands in its holder's name.
    """
    desk.left()
    gate = desk.gate()
    decided = desk.do(gate.reconcile("k", NOT_FOUND))

    assert (decided.state, decided.holder) == ("released", None)
    assert desk.hear(gate) == "done"


@pytest.mark.fault("a-probe-is-asked-right-after-a-crash")
def test_probed_waits_for_the_lease(desk: Desk) -> None:
    """
    A probe right after a crash can be early: a request may still be on its way. The wait that is told is the lease's.
    """
    desk.left(guarantee="probed", probe=unasked)
    heard = desk.hear(desk.gate(), guarantee="probed", probe=unasked)

    assert (InFlight, []) == (type(heard), desk.runs)
    assert LEASE / 2 < heard.retry_after_seconds <= LEASE
    assert "has died" in str(heard)


@pytest.mark.parametrize("side", ["holder", "caller"])
@pytest.mark.fault("takeover-lease-is-ignored")
def test_takeover_by_lease_waits_whoever_says_so(desk: Desk, side: str) -> None:
    """
    takeover="lease" switches it off: for a caller, and for whatever it claims itself.
    """
    options: dict[str, Any] = {"takeover": "lease"}
    desk.left(guarantee="repeatable", **(options if side == "holder" else {}))
    heard = desk.hear(desk.gate(**(options if side == "caller" else {})), guarantee="repeatable")

    assert (InFlight, []) == (type(heard), desk.runs)


@pytest.mark.parametrize("who", [REAL, Elsewhere(), Nameless()], ids=["alive", "elsewhere", "unnamed"])
@pytest.mark.parametrize("guarantee", ["blind", "repeatable"])
def test_whoever_is_not_proved_dead_is_waited_for(desk: Desk, who: Any, guarantee: Any) -> None:
    """
    A living process, one of another machine, and one that did not say who it is (the version before): in flight.
    """
    desk.left(who=who, guarantee=guarantee)
    gate = desk.gate()
    heard = desk.hear(gate, guarantee=guarantee)

    assert (InFlight, [], "claimed") == (type(heard), desk.runs, desk.state(gate))
    assert heard.retry_after_seconds <= 1


@pytest.mark.fault("a-name-speaks-for-any-claim")
def test_a_stale_name_does_not_speak_for_a_later_claim(desk: Desk) -> None:
    """
    A claim that an older version made over a dead one leaves the column as it was: it names nobody then.
    """
    dead = desk.left(guarantee="repeatable").operation.record
    store = desk.store()
    found = store.load(dead.id)
    store.put(of_an_older_version(found), found.version)
    heard = desk.hear(desk.gate(), guarantee="repeatable")

    assert (InFlight, []) == (type(heard), desk.runs)


def of_an_older_version(found: Record) -> Write:
    """The write with which an older version takes a claim over: it does not know the last column."""
    own = {field: getattr(found, field) for field in Claimant._fields if hasattr(found, field)}
    claimant = Claimant(**{**own, "holder": None}, lease=LEASE * 1_000_000, keyed_for=0, can_probe=False)
    write = claim(claimant, Start(found), token=b"t" * 16, version=b"v" * 16)
    return write._replace(holder=found.holder)


@pytest.mark.fault("a-settled-record-keeps-its-holder")
def test_a_record_names_its_holder_while_somebody_runs_it(desk: Desk) -> None:
    """
    Host, id and beginning while it is claimed; nobody once it is settled.
    """
    gate, seen = desk.gate(), []
    looking = Gate(desk.url, scope=desk.scope)

    def runs() -> str:
        found = looking.records.get("k")
        assert found is not None
        seen.append(found.holder)
        return "done"

    async def awaiting() -> str:
        return runs()

    desk.do(gate.run("k", awaiting if desk.awaits else runs))
    looking.close()
    me = this_process()

    assert [(me.host, me.pid, me.started_at)] == [(one.host, one.pid, one.started_at) for one in seen]
    assert desk.do(gate.records.get("k")).holder is None


def test_a_holder_that_was_taken_for_dead_changes_nothing_when_it_comes_back(desk: Desk) -> None:
    """
    If the proof was wrong (a cloned machine), it is refused as any late finisher is, and given the winner's answer.
    """
    late = desk.left(guarantee="repeatable")
    gate = desk.gate()
    desk.hear(gate, guarantee="repeatable")

    with pytest.raises(OwnershipLost) as lost:
        late.end(Returned("late"))
    assert lost.value.outcome is not None
    assert (lost.value.outcome.value, desk.hear(gate, guarantee="repeatable")) == ("done", "done")


def test_a_late_finisher_of_what_is_in_doubt_changes_nothing(desk: Desk) -> None:
    """
    What was put in doubt has another token: it stays in doubt until somebody decides.
    """
    late = desk.left()
    gate = desk.gate()
    desk.hear(gate)

    with pytest.raises(OwnershipLost):
        late.end(Returned("late"))
    assert desk.state(gate) == "in_doubt"


@pytest.mark.parametrize("guarantee", ["keyed", "repeatable", "blind"])
def test_of_six_restarts_at_once_one_runs(desk: Desk, guarantee: Any) -> None:
    """
    All of them see that the holder is dead; the record decides who goes on, and the others get its answer.
    """
    desk.left(guarantee=guarantee)
    gates = [desk.gate(wait=60, guarantee=guarantee) for _ in range(RESTARTS)]
    heard = desk.do(_gathered(desk, gates)) if desk.awaits else _threaded(desk, gates)

    if guarantee == "blind":
        assert ([InDoubt] * RESTARTS, []) == ([type(one) for one in heard], desk.runs)
    else:
        assert (heard, desk.runs) == (["done"] * RESTARTS, ["done"])


def _threaded(desk: Desk, gates: list[Any]) -> list[Any]:
    together = threading.Barrier(RESTARTS)

    def restart(gate: Any) -> Any:
        together.wait()
        return desk.hear(gate)

    with ThreadPoolExecutor(RESTARTS) as pool:
        return list(pool.map(restart, gates))


async def _gathered(desk: Desk, gates: list[Any]) -> list[Any]:
    return await asyncio.gather(*(gate.run("k", desk.body()) for gate in gates), return_exceptions=True)


def test_a_waiter_takes_over_when_the_holder_dies_meanwhile(desk: Desk) -> None:
    """
    Whoever waits goes on looking: the holder that lived when it began to wait may die.
    """
    desk.left(guarantee="repeatable", who=REAL)
    looks: list[bool] = []

    class DiesLater(type(REAL)):  # type: ignore[misc]
        def lives(self, process: Any) -> bool | None:
            looks.append(True)
            return len(looks) < 3

    assert desk.hear(desk.gate(wait=60, environment=DiesLater()), guarantee="repeatable") == "done"
    assert (len(looks), desk.runs) == (3, ["done"])


@pytest.mark.parametrize("shape", ["step", "number", "declared", "held"])
@pytest.mark.fault("the-dead-are-waited-for")
def test_every_shape_goes_on(desk: Desk, shape: str) -> None:
    """
    A plan's step, a sequence's number, a declared function and work that is held: left by a dead process, all go on.
    """
    heard: list[Any] = []

    def dies() -> str:
        gate = desk.gate(guarantee="keyed")
        try:
            heard.append(desk.do(called(gate, shape, desk.body())))
        except InFlight as error:
            heard.append(error)
        return "late"

    dead = Gate(desk.url, scope=desk.scope, lease=LEASE, environment=Gone(), guarantee="keyed")
    try:
        with pytest.raises(OwnershipLost):
            called(dead, shape, dies)
    finally:
        dead.close()

    assert heard == ["done"]


def called(gate: Any, shape: str, fn: Any) -> Any:
    """Run a function in one of the shapes of the idea."""
    match shape:
        case "step":
            return gate.plan("p").step("one", fn)
        case "number":
            return gate.sequence("s").call(1, fn).value if isinstance(gate, Gate) else _value(gate.sequence("s"), fn)
        case "held" if isinstance(gate, Gate):
            held = gate.hold("h", name="held")
            return held.end(Returned(fn())).value if isinstance(held, HeldOperation) else held.value
        case "held":
            return gate.run("h", fn, name="held")
    return gate.once(key=lambda: "declared:1", name="declared")(fn)()


async def _value(sequence: Any, fn: Any) -> Any:
    return (await sequence.call(1, fn)).value


# --- in the caller's own transaction ---


@pytest.fixture
def connection(joining_desk: Desk) -> Any:
    """A connection to the gate's database, of the desk's colour."""
    if joining_desk.kind == "sqlite":
        return sqlite3.connect(joining_desk.url.removeprefix("sqlite:///"))
    if joining_desk.awaits:
        return joining_desk.do(psycopg.AsyncConnection.connect(joining_desk.url))
    return psycopg.connect(joining_desk.url)


def atomically(desk: Desk, gate: Any, connection: Any, **options: Any) -> Any:
    """What a caller hears who runs the key in its own transaction."""
    try:
        return desk.do(gate.atomic(connection, "k", desk.body(), **options))
    except (InDoubt, InFlight, KeyReused) as error:
        return error
    finally:
        desk.do(connection.close())


@pytest.mark.parametrize("claim", ["first", "last"])
def test_atomic_runs_at_once(joining_desk: Desk, connection: Any, claim: Any) -> None:
    """
    A dead process's transaction is undone: nothing happened, and it runs.
    """
    joining_desk.left(guarantee="atomic", settle="inside")

    assert atomically(joining_desk, joining_desk.gate(), connection, claim=claim) == "done"


@pytest.mark.parametrize("claim", ["first", "last"])
@pytest.mark.fault("atomic-mode-waits-for-the-dead")
def test_in_atomic_mode_a_dead_blind_claim_is_in_doubt_and_stored_outside(
    joining_desk: Desk, connection: Any, claim: Any
) -> None:
    """
    The caller's transaction is undone; what everybody must see is not undone with it.
    """
    joining_desk.left()
    gate = joining_desk.gate()

    assert InDoubt is type(atomically(joining_desk, gate, connection, claim=claim))
    assert (joining_desk.runs, joining_desk.state(gate)) == ([], "in_doubt")


def test_in_atomic_mode_another_request_is_refused_and_touches_nothing(joining_desk: Desk, connection: Any) -> None:
    """
    A claim that lives and is for something else: the key is reused, and its holder goes on undisturbed.
    """
    held = joining_desk.left(who=REAL, request={"other": True})
    gate = joining_desk.gate()

    assert KeyReused is type(atomically(joining_desk, gate, connection))
    assert joining_desk.state(gate) == "claimed"
    assert held.end(Returned("late")).value == "late"


def test_settled_inside_by_a_dead_process_runs_again(joining_desk: Desk) -> None:
    """
    Claimed by the gate and never settled: the transaction died with its process. The next one may have it.
    """
    joining_desk.left(guarantee="atomic", settle="inside")
    store, gate = joining_desk.store(), Gate(joining_desk.url, scope=joining_desk.scope, lease=LEASE, wait=0)
    held = held_elsewhere(gate, "k", guarantee="atomic", settle="inside")

    assert isinstance(held, HeldOperation)
    assert (held.operation.attempt, store.load(held.operation.record.id).state) == (2, "claimed")
    gate.close()
