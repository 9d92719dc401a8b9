"""A tool that an agent calls: does it survive retries, duplicates and crashes? And the same tool without the gate."""

from __future__ import annotations

import pytest

from onceward import Gate, InDoubt, Operation
from onceward.testing.assert_once import AssertOnce
from onceward.testing.crash_marker import CrashHere
from onceward.testing.effects import Effects
from onceward.testing.once_story import DoubledEffect
from onceward.testing.sandbox import SandboxClock


def send_invoice(effects: Effects, number: str) -> str:
    """The tool; `effects` stands for the mail server."""
    effects.record("invoice")
    return f"sent {number}"


def test_an_invoice_is_sent_once(assert_once: AssertOnce, onceward_gate: Gate, onceward_effects: Effects) -> None:
    @onceward_gate.once(key="invoice:{number}")
    def tool(number: str) -> str:
        return send_invoice(onceward_effects, number)

    report = assert_once(tool, "2026-017")
    assert "settle.before" in report.points  # Sent, and nobody has written it down: tried, too.


def test_a_bank_that_honours_keys_charges_once(
    assert_once: AssertOnce, onceward_gate: Gate, onceward_effects: Effects
) -> None:
    @onceward_gate.once(key="charge:{order_id}", guarantee="keyed")
    def tool(operation: Operation, order_id: str) -> str:
        onceward_effects.record("charge", key=operation.downstream_key("stripe"))  # Asked twice, charged once.
        return "charged"

    assert_once(tool, "o-17")


@pytest.mark.onceward_crash("effect.after", "settle.before")
def test_what_nobody_knows_is_not_done_again(
    onceward_crash: CrashHere, onceward_gate: Gate, onceward_clock: SandboxClock, onceward_effects: Effects
) -> None:
    with onceward_crash():
        onceward_gate.run("invoice:acme", lambda: send_invoice(onceward_effects, "acme"))
    onceward_clock.advance(61)  # The lease of the dead process is over.
    with pytest.raises(InDoubt):
        onceward_gate.run("invoice:acme", lambda: send_invoice(onceward_effects, "acme"))

    assert onceward_effects.count("invoice") == 1


def test_without_the_gate_it_is_sent_twice(assert_once: AssertOnce, onceward_effects: Effects) -> None:
    with pytest.raises(DoubledEffect, match="2 x invoice, where one run makes 1"):
        assert_once(send_invoice, onceward_effects, "acme")
