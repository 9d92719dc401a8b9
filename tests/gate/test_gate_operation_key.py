"""`operation.key` is what the caller gave; `operation.stored_key` is what records show."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import NOT_FOUND, Found, Operation

SCOPES = ("test:acme", "live:acme", "acme")


def stored(scope: str, key: str) -> str:
    """As a record shows it."""
    environment, colon, _ = scope.partition(":")
    return f"{environment}:{key}" if colon else key


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.fault("operation-key-carries-the-environment")
def test_a_function_sees_the_key_that_its_caller_gave(world: Any, scope: str) -> None:
    """
    Under a scope that names its environment, too; the stored one has a name of its own.
    """
    gate = world.gate(scope=scope)

    @gate.once(key="charge:{order}")
    def declared(order: str, *, operation: Operation) -> list[str]:
        return [operation.key, operation.stored_key]

    called = gate.run("k", lambda operation: [operation.key, operation.stored_key])
    step = gate.plan("p").step("one", lambda operation: [operation.key, operation.stored_key])
    entry = gate.sequence("s").run(1, lambda operation: [operation.key, operation.stored_key])

    assert called == ["k", stored(scope, "k")]
    assert declared("o-1") == ["charge:o-1", stored(scope, "charge:o-1")]
    assert step == ["p / one", stored(scope, "p / one")]
    assert entry == ["s / 1", stored(scope, "s / 1")]


def test_a_key_that_the_caller_gave_with_its_environment_keeps_it(world: Any) -> None:
    """
    It is stored as it is, so both names are the same; without it, it is the same record.
    """
    gate = world.gate(scope="test:acme")

    assert gate.run("test:k", lambda operation: [operation.key, operation.stored_key]) == ["test:k", "test:k"]
    assert gate.call("k", lambda: "again").replayed


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.fault("operation-key-carries-the-environment")
def test_a_probe_that_looks_up_by_the_key_finds_what_was_done_under_it(world: Any, scope: str) -> None:
    """
    The effect notes the caller's key, as any table outside would; after a crash the probe finds it, and nothing runs.
    """
    done: list[str] = []

    def effect() -> str:
        done.append("k-1")
        return "charged"

    def probe(operation: Operation) -> Any:
        return Found("charged before") if operation.key in done else NOT_FOUND

    probing = (lambda operation: _later(probe(operation))) if world.awaits else probe
    crashing, store = world.faulty(scope=scope)
    store.die_before("settled")
    with pytest.raises(world.Died):
        crashing.run("k-1", effect, guarantee="probed", probe=probing)
    world.env.advance(61)
    answer = world.gate(scope=scope).run("k-1", effect, guarantee="probed", probe=probing)

    assert (answer, done) == ("charged before", ["k-1"])


async def _later(value: Any) -> Any:
    return value
