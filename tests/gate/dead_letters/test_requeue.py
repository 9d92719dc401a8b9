"""Doing it again: under the same key, or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dead_support import COLOURS, Desk

from onceward import (
    NOT_FOUND,
    AsyncGate,
    ConfigurationError,
    Found,
    Gate,
    InDoubt,
    KeyReused,
    Operation,
    OutcomeUnknown,
    StoreUnavailable,
)
from onceward.errors import IllegalMove, SealKeyMissing
from onceward.gate import DeadLetter, Sealed

REFUSED = ConnectionRefusedError("refused")
UNKNOWN = TimeoutError("no answer")


class TestRequeue:
    """On every store, in both colours."""

    def test_a_requeue_that_succeeds_discards_the_letter(self, desk: Desk) -> None:
        """
        The handler gets the arguments in its own types; the record under the same key holds the answer.
        """
        dead, got = desk.gate.dead_letters(payload="plain"), []

        def charge(order: str, amount: Decimal, currency: str = "USD") -> dict[str, str]:
            got.append((order, amount, currency))
            return {"charge": "ch_1"}

        dead.handle("charge", desk.coloured(charge))
        desk.give_up(dead, REFUSED, "o-17", Decimal("12.50"), currency="EUR")

        assert desk.do(dead.requeue("charge:1")) == {"charge": "ch_1"}
        assert got == [("o-17", Decimal("12.50"), "EUR")]
        assert desk.do(dead.get("charge:1")) is None
        assert desk.do(desk.gate.records.get("charge:1")).result == {"charge": "ch_1"}

    def test_a_requeue_that_fails_updates_the_letter(self, desk: Desk) -> None:
        """
        The new error is the last one, the requeue is counted, and the error is raised.
        """
        dead = desk.gate.dead_letters()

        def charge() -> None:
            raise ConnectionRefusedError("still refused")

        dead.handle("charge", desk.coloured(charge), guarantee="repeatable")
        before = desk.give_up(dead, REFUSED)
        with pytest.raises(ConnectionRefusedError, match="still refused"):
            desk.do(dead.requeue(before))
        letter = desk.do(dead.get(before))

        assert (letter.reason, letter.count, letter.requeues, letter.attempts) == ("requeue", 1, 1, 4)
        assert (letter.tries[-1].number, letter.message) == (4, "still refused")

    def test_an_operation_in_doubt_is_reconciled_first(self, desk: Desk) -> None:
        """
        Refused with the command that decides it; the handler is not called. Decided, it is done or replayed.
        """
        dead, calls = desk.gate.dead_letters(), []
        dead.handle("charge", desk.coloured(lambda: calls.append(1) or "done"))

        def blind() -> None:
            raise UNKNOWN

        with pytest.raises(TimeoutError):
            desk.do(desk.gate.run("charge:1", desk.coloured(blind)))
        letter = desk.give_up(dead, UNKNOWN)
        with pytest.raises(InDoubt, match=f"onceward records reconcile {letter.record} ") as refused:
            desk.do(dead.requeue(letter))

        assert "--did-not-happen" in str(refused.value)
        assert ([], letter.version) == (calls, desk.do(dead.get(letter)).version)
        desk.do(desk.gate.reconcile("charge:1", NOT_FOUND))
        assert (desk.do(dead.requeue(letter)), calls) == ("done", [1])

    def test_what_was_done_in_the_meantime_is_not_done_again(self, desk: Desk) -> None:
        """
        Its record has the answer (here: somebody reconciled it): that is returned, and the letter goes.
        """
        dead = desk.gate.dead_letters()
        dead.handle("charge", desk.coloured(lambda: pytest.fail("it ran again")))

        def blind() -> None:
            raise UNKNOWN

        with pytest.raises(TimeoutError):
            desk.do(desk.gate.run("charge:1", desk.coloured(blind), request={"order": "o-17"}))
        desk.give_up(dead, UNKNOWN)
        desk.do(desk.gate.reconcile("charge:1", Found("by hand")))

        assert desk.do(dead.requeue("charge:1")) == "by hand"
        assert desk.do(dead.get("charge:1")) is None

    def test_a_declared_function_goes_through_its_own_gate(self, desk: Desk) -> None:
        """
        The whole stack: letters around a policy around a gate. One key everywhere, and one effect.
        """
        dead, world = desk.gate.dead_letters(payload="plain"), {"up": False, "charges": 0}
        policy = desk.policy(dead, key="charge:{order}", name="charge")

        def charge(order: str, amount: Decimal, *, operation: Operation) -> str:
            with operation.effect():
                if not world["up"]:
                    raise REFUSED
                world["charges"] += 1
                return f"{order} {amount + 1}"

        declared = policy(desk.gate.once(key="charge:{order}")(desk.coloured(charge)))
        dead.handle("charge", declared)
        with pytest.raises(ConnectionRefusedError):
            desk.do(declared("o-17", Decimal("12.50")))
        first = desk.do(dead.get("charge:o-17"))
        with pytest.raises(ConnectionRefusedError):
            desk.do(dead.requeue("charge:o-17"))
        again = desk.do(dead.get("charge:o-17"))
        world["up"] = True

        assert (first.count, again.count, again.requeues) == (1, 2, 0)  # Its own policy has put it, and only that.
        assert desk.do(dead.requeue("charge:o-17")) == "o-17 13.50"
        assert (desk.do(declared("o-17", Decimal("12.50"))), world["charges"]) == ("o-17 13.50", 1)


class TestRefusals:
    """Nothing is run, and the letter stays as it is."""

    def refused(self, quick: Desk, dead: Any, letter: DeadLetter, error: type[Exception], says: str) -> None:
        with pytest.raises(error, match=says):
            quick.do(dead.requeue(letter))
        assert letter.version == quick.do(dead.get(letter)).version

    def test_without_a_handler(self, quick: Desk) -> None:
        """
        With the name to register one under, and those that there are.
        """
        dead = quick.gate.dead_letters()
        dead.handle("refund", quick.coloured(lambda: None))
        letter = quick.give_up(dead, REFUSED)
        self.refused(quick, dead, letter, ConfigurationError, r"registered: 'refund'.*@dead.handler\('charge'\)")

    def test_without_the_payload_that_the_handler_needs(self, quick: Desk) -> None:
        """
        With both ways out: keep arguments, or take the letter.
        """
        dead = quick.gate.dead_letters()
        dead.handle("charge", quick.coloured(lambda order, amount=1: None))
        letter = quick.give_up(dead, REFUSED, "o-17")
        self.refused(quick, dead, letter, ConfigurationError, "takes order, and .* has no payload")

    def test_with_arguments_that_the_handler_does_not_take(self, quick: Desk) -> None:
        """
        It was declared otherwise since then.
        """
        dead = quick.gate.dead_letters(payload="plain")
        dead.handle("charge", quick.coloured(lambda customer: None))
        letter = quick.give_up(dead, REFUSED, order="o-17")
        self.refused(quick, dead, letter, ConfigurationError, "does not take the arguments that were kept")

    def test_with_arguments_of_another_type(self, quick: Desk) -> None:
        """
        The annotation says Decimal, and what was kept is no number.
        """

        def charge(amount: Decimal) -> None:
            pytest.fail("it ran")

        dead = quick.gate.dead_letters(payload="plain")
        dead.handle("charge", quick.coloured(charge))
        letter = quick.give_up(dead, REFUSED, "a lot")
        self.refused(quick, dead, letter, ConfigurationError, "another type for amount")

    def test_with_a_declared_function_that_makes_another_key(self, quick: Desk) -> None:
        """
        The recipe has changed since then: under another key it could happen twice.
        """
        dead = quick.gate.dead_letters(payload="plain")
        declared = quick.gate.once(key="charge:v2:{order}")(quick.coloured(lambda order: pytest.fail("it ran")))
        dead.handle("charge", declared)
        letter = quick.give_up(dead, REFUSED, "1")
        self.refused(quick, dead, letter, ConfigurationError, "under another key")

    def test_sealed_with_a_key_that_is_gone(self, quick: Desk) -> None:
        """
        And the message does not say what is in it.
        """
        quick.give_up(quick.gate.dead_letters(payload=Sealed(Sealed.new_key())), REFUSED, "4111-1111")
        dead = quick.gate.dead_letters(payload=Sealed(Sealed.new_key()))
        dead.handle("charge", quick.coloured(lambda card: pytest.fail("it ran")))
        letter = quick.do(dead.get("charge:1"))
        self.refused(quick, dead, letter, SealKeyMissing, "sealed under key")

    def test_a_call_without_a_key_that_may_have_happened(self, quick: Desk) -> None:
        """
        Nothing protects it from happening twice, so somebody has to say that he has looked.
        """
        dead = quick.gate.dead_letters()
        dead.handle("charge", quick.coloured(lambda: "done"))
        letter = quick.give_up(dead, UNKNOWN, key=None)
        self.refused(quick, dead, letter, OutcomeUnknown, f"dead requeue {letter.digest} --did-not-happen")

        assert quick.do(dead.requeue(letter, did_not_happen=True)) == "done"

    def test_a_keyed_operation_in_doubt_waits_for_a_decision_too(self, quick: Desk) -> None:
        """
        A gate would send it again under its key; from a dead letter, days later perhaps, somebody looks first.
        """
        dead = quick.gate.dead_letters()
        dead.handle("charge", quick.coloured(lambda: pytest.fail("it ran")), guarantee="keyed")

        def keyed() -> None:
            raise UNKNOWN

        with pytest.raises(TimeoutError):
            quick.do(quick.gate.run("charge:1", quick.coloured(keyed), guarantee="keyed"))
        letter = quick.give_up(dead, UNKNOWN)
        self.refused(quick, dead, letter, InDoubt, "onceward records reconcile")

    def test_a_letter_that_is_not_there(self, quick: Desk) -> None:
        """
        Discarded, or never put; or another scope's.
        """
        dead = quick.gate.dead_letters()
        letter = quick.give_up(dead, REFUSED)
        with pytest.raises(ConfigurationError, match="another scope"):
            quick.do(dead.requeue(replace(letter, scope="test:other")))
        quick.do(dead.discard(letter))
        with pytest.raises(IllegalMove, match=f"no such dead letter {letter.digest}"):
            quick.do(dead.requeue(letter))


class TestHandlers:
    """What can be registered."""

    def test_a_handler_may_take_the_letter_and_the_operation(self, quick: Desk) -> None:
        """
        Without a payload, it looks the rest up by the letter's key.
        """
        dead = quick.gate.dead_letters()

        def charge(letter: DeadLetter, operation: Operation) -> list[Any]:
            return [letter.key, operation.key, operation.attempt]

        dead.handle("charge", quick.coloured(charge))
        quick.give_up(dead, REFUSED, "o-17")

        assert quick.do(dead.requeue("charge:1")) == ["test:charge:1", "charge:1", 1]

    def test_a_handler_may_go_through_the_gate_by_itself(self, quick: Desk) -> None:
        """
        gated=True: it is called as it is.
        """
        dead = quick.gate.dead_letters()

        @dead.handler("charge", gated=True)
        def charge(letter: DeadLetter) -> Any:
            return quick.gate.run(letter.key, quick.coloured(lambda: "done"))

        quick.give_up(dead, REFUSED)

        assert quick.do(dead.requeue("charge:1")) == "done"
        assert dead.handlers == ("charge",)

    def test_an_effect_that_is_marked_frees_the_key_when_it_is_not_reached(self, quick: Desk) -> None:
        """
        As everywhere: the requeue may be tried again at once.
        """
        dead, first = quick.gate.dead_letters(), [True]

        def charge(*, operation: Operation) -> str:
            if first.pop() if first else False:
                raise ValueError("before the effect")
            with operation.effect():
                return "done"

        if quick.awaits:

            async def awaiting(*, operation: Operation) -> str:
                if first.pop() if first else False:
                    raise ValueError("before the effect")
                with operation.effect():
                    return "done"

            dead.handle("charge", awaiting)
        else:
            dead.handle("charge", charge)
        quick.give_up(dead, REFUSED)
        with pytest.raises(ValueError, match="before the effect"):
            quick.do(dead.requeue("charge:1"))

        assert quick.do(dead.requeue("charge:1")) == "done"

    @pytest.mark.parametrize(
        ("name", "fn", "options", "says"),
        [
            ("", print, {}, "the name of the calls"),
            ("charge", "print", {}, "cannot be called"),
            ("taken", lambda: None, {}, "a name can have only one"),
            ("charge", lambda: None, {"gated": True, "guarantee": "keyed"}, "takes its options from there"),
            ("charge", lambda: None, {"leese": 3}, "no option 'leese'"),
            ("charge", lambda: None, {"in_flight": "accept"}, "gate.call only"),
        ],
    )
    def test_what_cannot_work_is_refused_at_once(
        self, name: Any, fn: Any, options: Any, says: str, quick: Desk
    ) -> None:
        """
        When it is registered, and not when somebody needs it.
        """
        dead = quick.gate.dead_letters()
        dead.handle("taken", lambda: None)
        with pytest.raises(ConfigurationError, match=says):
            dead.handle(name, fn, **options)
        assert dead.handlers == ("taken",)

    def test_an_async_handler_needs_an_async_gate(self) -> None:
        """
        A blocking gate would never run it.
        """

        async def charge() -> None: ...

        with pytest.raises(ConfigurationError, match="use AsyncGate"):
            Gate("memory://", scope="test:acme").dead_letters().handle("charge", charge)
        AsyncGate("memory://", scope="test:acme").dead_letters().handle("charge", charge)

    def test_a_declared_function_knows_its_key_without_running(self, quick: Desk) -> None:
        """
        So a policy that was given no key still gives its letters the right one.
        """
        declared = quick.gate.once(key="charge:{order}")(quick.coloured(lambda order: pytest.fail("it ran")))
        assert declared.key_of("o-17") == "charge:o-17"

        dead = quick.gate.dead_letters()

        def refused(order: str) -> None:
            raise REFUSED

        plain = quick.gate.once(key="charge:{order}", before=ConnectionRefusedError)(quick.coloured(refused))
        with pytest.raises(ConnectionRefusedError):
            quick.call(quick.policy(dead, name="charge"), plain, "o-18")
        letter = quick.do(dead.get("charge:o-18"))

        assert (letter.keyed, letter.reason) == (True, "attempts")
        assert letter.record == quick.do(quick.gate.records.get("charge:o-18")).digest


class TestHalfWay:
    """Between the handler's success and the letter's end."""

    def test_a_store_that_leaves_after_the_effect_does_not_undo_it(
        self, quick: Desk, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        The value is returned, the log says that the letter is behind, and another requeue replays.
        """
        dead, calls = quick.gate.dead_letters(), []
        dead.handle("charge", quick.coloured(lambda: calls.append(1) or "done"))
        quick.give_up(dead, REFUSED)
        store, put = quick.gate.store, quick.gate.store.put

        def refusing(write: Any, expect: Any) -> Any:
            if write.kind == "dead":
                raise StoreUnavailable
            return put(write, expect)

        store.put = refusing
        assert quick.do(dead.requeue("charge:1")) == "done"
        store.put = put

        assert any("could not be updated after its requeue" in one.getMessage() for one in caplog.records)
        assert (quick.do(dead.requeue("charge:1")), calls) == ("done", [1])
        assert quick.do(dead.get("charge:1")) is None

    @pytest.mark.parametrize("colour", COLOURS)
    @pytest.mark.parametrize(("failpoint", "effects"), [("dead.discard.before", 1), ("dead.discard.after", 1)])
    def test_killed_before_the_letter_is_gone_the_effect_happens_once(
        self, tmp_path: Path, failpoint: str, effects: int, colour: str
    ) -> None:
        """
        kill -9 between the handler's success and the discard: the next requeue replays the answer.
        """
        killed = _requeue_in_a_process(tmp_path, failpoint, colour)
        with Gate(f"sqlite:///{tmp_path}/dead.db", scope="test:acme") as gate:
            dead = gate.dead_letters()
            dead.handle("charge", lambda: pytest.fail("it ran again"))
            left = dead.get("charge:1")
            value = dead.requeue("charge:1") if left is not None else gate.run("charge:1", lambda: "again", request={})

        assert killed == -signal.SIGKILL
        assert (failpoint == "dead.discard.before") == (left is not None)
        assert ("charged", effects) == (value, len((tmp_path / "effects").read_text()))


_REQUEUES = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from colours import Colour
from onceward import AsyncGate, Gate, Retry
from onceward.runtime import failpoints

folder, colour = Path(sys.argv[1]), Colour(sys.argv[4])
gate = colour.pick(Gate, AsyncGate)(f"sqlite:///{folder}/dead.db", scope="test:acme")
dead = gate.dead_letters()

def charge():
    with (folder / "effects").open("a") as world:
        world.write("x")
    return "charged"

async def acharge():
    return charge()

dead.handle("charge", colour.pick(charge, acharge))

def refused():
    raise ConnectionRefusedError

async def arefused():
    raise ConnectionRefusedError

try:
    policy = Retry(1, dead=dead, name="charge").bind(key="charge:1")
    colour.ask(policy, "call", colour.pick(refused, arefused))
except ConnectionRefusedError:
    failpoints.arm(sys.argv[2], "kill")
    colour.run(dead.requeue, "charge:1")
"""


def _requeue_in_a_process(folder: Path, failpoint: str, colour: str) -> int:
    tests = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", _REQUEUES, str(folder), failpoint, tests, colour]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def test_the_same_key_for_something_else_is_still_refused(quick: Desk) -> None:
    """
    After a requeue, the record compares as ever: the letter's arguments were its request.
    """
    dead = quick.gate.dead_letters(payload="plain")

    def charge(**order: Any) -> str:
        return "done"

    dead.handle("charge", quick.coloured(charge))
    quick.give_up(dead, REFUSED, order="o-17")
    quick.do(dead.requeue("charge:1"))

    with pytest.raises(KeyReused):
        quick.do(quick.gate.run("charge:1", quick.coloured(lambda: "other"), request={"order": "o-18"}))
