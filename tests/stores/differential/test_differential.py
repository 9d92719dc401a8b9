"""The same steps on every store: the same answers, whatever lies beneath."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from differential_support import IDENTITIES, Ended, Step, first_difference, observed, trace

from onceward import NOT_FOUND, Found, Gate, OncewardError
from onceward._core.record import PutResult
from onceward.errors import NothingHappened
from onceward.stores import PurgeResult
from onceward.stores.memory import MemoryStore
from onceward.testing.clock import StillEnvironment
from onceward.testing.store_suite.rows import HOUR_US

Opened = Callable[..., Any]

BATCHES = 8
TRACES_IN_BATCH = 15
STILL_TRACES = 30
GATE_BATCHES = 4
GATE_TRACES_IN_BATCH = 10
GATE_STEPS = 20


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.dose(4)
def test_every_store_gives_the_same_answers_to_the_same_steps(
    opened: Opened, kinds: tuple[str, ...], batch: int
) -> None:
    """
    Landed or not, what stands there field by field, counts and pages: all but what is the clock's.
    """
    for seed in range(batch * TRACES_IN_BATCH, (batch + 1) * TRACES_IN_BATCH):
        steps = trace(seed)
        reference, *others = [(kind, observed(opened(kind), steps)) for kind in kinds]

        for kind, answers in others:
            assert (seed, kind, None) == (seed, kind, first_difference(reference[1], answers))


@pytest.mark.parametrize("batch", range(2))
def test_where_the_clock_stands_still_the_answers_are_equal_to_the_microsecond(opened: Opened, batch: int) -> None:
    """
    Memory and SQLite on one kind of clock, with time passing between steps: durations, instants and fences, too.
    """
    for seed in range(1_000 + batch * STILL_TRACES, 1_000 + (batch + 1) * STILL_TRACES):
        steps = trace(seed)
        reference, other = (
            observed(opened(kind, environment=still), steps, environment=still)
            for kind, still in (("memory", StillEnvironment()), ("sqlite", StillEnvironment()))
        )

        assert (seed, None) == (seed, first_difference(reference, other))


def test_the_traces_reach_every_kind_of_answer() -> None:
    """
    Puts that land and that do not, rows extended, forgotten and shrunk, every state: or nothing was compared.
    """
    answers = [answer for seed in range(50) for answer in observed(MemoryStore(), trace(seed))]
    puts = [answer for what, answer in answers if isinstance(answer, tuple) and what != "purge"]
    purged = [answer for what, answer in answers if what == "purge"]
    states = {(shown["state"], shown["replay_left"] == "over") for landed, shown in puts if landed}

    assert {(landed, shown is not None) for landed, shown in puts} == {(True, True), (False, True), (False, False)}
    assert {("claimed", False), ("settled", False), ("settled", True), ("released", False)} <= states
    assert ("in_doubt", False) in states
    assert [any(column) for column in zip(*purged, strict=True)] == [True, True]
    assert True is any(answer for what, answer in answers if what == "extend")
    assert True is any(len(answer) > 1 for what, answer in answers if what == "scan")


# --- negative control: one planted deviation each ---


class Overwriting(MemoryStore):
    """A put lands whatever version stands there."""

    def put(self, write: Any, expect: bytes | None) -> PutResult:
        found = self.load(write.id)
        return super().put(write, found.version if found is not None else None)


class Blunt(MemoryStore):
    """The fence does not rise above what the caller brings."""

    def put(self, write: Any, expect: bytes | None) -> PutResult:
        return super().put(write._replace(fence=1, rise=False), expect)


class Silent(MemoryStore):
    """A put that did not land does not tell what stands there."""

    def put(self, write: Any, expect: bytes | None) -> PutResult:
        landed, found = super().put(write, expect)
        return PutResult(landed, found if landed else None)


class Inclusive(MemoryStore):
    """A scan leaves out the first of a later page."""

    def scan(self, after: bytes, limit: int, selection: Any) -> Any:
        page = super().scan(after, limit, selection)
        return page[1:] if after else page


class Generous(MemoryStore):
    """A family's records are given an hour more than asked for."""

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        return super().extend(family, replay + HOUR_US, forget)


class Keeping(MemoryStore):
    """A purge says what it would do, and does nothing."""

    def purge(self, limit: int) -> PurgeResult:
        return PurgeResult(0, 0)


class Emptying(MemoryStore):
    """A stored answer that is empty is read back as none at all."""

    def load(self, id: bytes) -> Any:
        found = super().load(id)
        return found if found is None or found.result else found._replace(result=None)


@pytest.mark.parametrize("deviant", [Overwriting, Blunt, Silent, Inclusive, Generous, Keeping, Emptying])
def test_a_store_that_deviates_in_one_thing_is_found_out(deviant: type[MemoryStore]) -> None:
    """
    The comparison bites: each planted deviation shows in some trace, and an honest store's answers in none.
    """
    honest = [first_difference(observed(MemoryStore(), trace(n)), observed(MemoryStore(), trace(n))) for n in range(60)]
    found = [first_difference(observed(MemoryStore(), trace(n)), observed(deviant(), trace(n))) for n in range(60)]

    assert [one for one in honest if one is not None] == []
    assert [one for one in found if one is not None] != []


# --- what only a certain order of steps shows ---


def test_a_key_that_was_purged_begins_anew_and_above_on_every_store(opened: Opened, kinds: tuple[str, ...]) -> None:
    """
    Claimed, settled, forgotten, purged and claimed again: a first attempt with a greater fence.
    """
    who = IDENTITIES[0]
    ended = Ended(0, 0, "json/1", b"1", None)
    steps = [
        Step("claim", who, "none", b"a" * 16, b"t" * 16, (None, "blind", HOUR_US, False)),
        Step("settle", who, "right", b"b" * 16, b"", ended),
        Step("purge"),
        Step("load", who),
        Step("claim", who, "none", b"c" * 16, b"u" * 16, (None, "blind", HOUR_US, False)),
    ]

    for kind in kinds:
        *_, purged, loaded, claimed, _ = observed(opened(kind), steps)
        landed, shown = claimed[1]

        assert (kind, PurgeResult(1, 0), None) == (kind, purged[1], loaded[1])
        assert (kind, True, (1, 1), 1) == (kind, landed, shown["fence"], shown["attempt"])


# --- through a gate ---


def gate_trace(seed: int) -> list[tuple[str, str, int]]:
    """What callers do: an action, a key and a number to tell one request from another."""
    dice = random.Random(f"gate/{seed}")
    keys = ("charge:1", "charge:2", "transfer:3")
    return [(dice.choice(list(ACTIONS)), dice.choice(keys), dice.randrange(100)) for _ in range(GATE_STEPS)]


def _raising(error: BaseException) -> Callable[[], Any]:
    def raises() -> Any:
        raise error

    return raises


def _in_flight(gate: Gate, key: str) -> Callable[[], Any]:
    """Somebody else calls while we run."""
    return lambda: heard(lambda: gate.run(key, lambda: 1, request="same", name="charge", in_flight="refuse"))


def _brief(gate: Gate, key: str) -> Any:
    """An answer whose time is over at once; purged, so that it is a tombstone whoever is quicker."""
    try:
        return _told(gate.call(key, lambda: "brief", request="same", name="charge", retain=0.001))
    finally:
        time.sleep(0.003)
        gate.purge()


def _told(outcome: Any) -> Any:
    value = outcome.value if outcome.replayable else "something that cannot be kept"
    return value, outcome.replayed, outcome.attempt, outcome.replayable, outcome.pending


def _call(gate: Gate, key: str, fn: Callable[[], Any], **options: Any) -> Any:
    return _told(gate.call(key, fn, **{"request": "same", "name": "charge", **options}))


ACTIONS: dict[str, Callable[[Gate, str, int], Any]] = {
    "success": lambda gate, key, n: _call(gate, key, lambda: {"n": n, "ä": [None, 1.5]}),
    "bytes": lambda gate, key, n: _call(gate, key, lambda: bytes([n, 0, 255])),
    "run": lambda gate, key, n: gate.run(key, lambda: n, request="same", name="charge"),
    "not replayable": lambda gate, key, n: _call(gate, key, object),
    "unknown error": lambda gate, key, n: _call(gate, key, _raising(TimeoutError(f"no answer {n}"))),
    "harmless error": lambda gate, key, n: _call(
        gate, key, _raising(TimeoutError(f"no answer {n}")), guarantee="repeatable"
    ),
    "remembered error": lambda gate, key, n: _call(gate, key, _raising(ValueError(f"declined {n}")), remember="all"),
    "nothing happened": lambda gate, key, n: _call(gate, key, _raising(NothingHappened(f"refused {n}"))),
    "keyed": lambda gate, key, n: _call(gate, key, _raising(TimeoutError()), guarantee="keyed"),
    "keyed again": lambda gate, key, n: _call(gate, key, lambda: n, guarantee="keyed"),
    "probed": lambda gate, key, n: _call(
        gate, key, lambda: n, guarantee="probed", probe=lambda operation: Found("probed") if n % 2 else NOT_FOUND
    ),
    "other request": lambda gate, key, n: _call(gate, key, lambda: n, request=f"another {n}"),
    "in flight": lambda gate, key, n: _call(gate, key, _in_flight(gate, key)),
    "brief": lambda gate, key, n: _brief(gate, key),
    "it happened": lambda gate, key, n: gate.reconcile(key, Found(n)).state,
    "it did not happen": lambda gate, key, n: gate.reconcile(key, NOT_FOUND).state,
    "another fence": lambda gate, key, n: gate.reconcile(key, NOT_FOUND, fence=n).state,
    "in doubt": lambda gate, key, n: [one.key for one in gate.records.in_doubt()],
}


def heard(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a caller hears: an answer, or an error's code (or name, if it is not one of ours)."""
    try:
        return ["answer", call(*arguments)]
    except OncewardError as error:
        return ["error", error.code, error.retry.value, getattr(error, "type", None)]
    except Exception as error:
        return ["error", type(error).__name__, str(error)]


def witnessed(gate: Gate, steps: list[tuple[str, str, int]]) -> list[Any]:
    """What callers hear, and what is shown of the record after each step."""
    fences: dict[str, list[int]] = defaultdict(list)
    answers = []
    for action, key, number in steps:
        answer = heard(ACTIONS[action], gate, key, number)
        shown = gate.records.get(key)
        if shown is None:
            answers.append((action, answer, None))
            continue
        if shown.fence not in fences[key]:
            fences[key].append(shown.fence)
        # Every new fence is the greatest so far: the gate never goes back.
        order = (fences[key].index(shown.fence), fences[key] == sorted(fences[key]))
        about = (shown.state, shown.guarantee, shown.doubt, shown.attempt, shown.codec, shown.result, shown.failure)
        answers.append((action, answer, (order, about, shown.settled_at is not None)))
    return answers


@pytest.mark.parametrize("batch", range(GATE_BATCHES))
@pytest.mark.dose(2)
def test_a_gate_gives_the_same_answers_on_every_store(opened: Opened, kinds: tuple[str, ...], batch: int) -> None:
    """
    Successes, errors of all kinds, other requests, calls in flight and decisions: same answers, codes and states.
    """
    for seed in range(batch * GATE_TRACES_IN_BATCH, (batch + 1) * GATE_TRACES_IN_BATCH):
        steps = gate_trace(seed)
        heard_on = {}
        for kind in kinds:
            heard_on[kind] = witnessed(Gate(opened(kind), scope=f"test:{seed}"), steps)

        for kind in kinds[1:]:
            assert (seed, kind, None) == (seed, kind, first_difference(heard_on["memory"], heard_on[kind]))


def test_the_callers_hear_of_everything() -> None:
    """
    Answers first and replayed, and every refusal that a caller can meet here: or nothing was compared.
    """
    answers = [one for seed in range(40) for one in witnessed(Gate("memory://", scope="test:all"), gate_trace(seed))]
    codes = {answer[1] for _, answer, _ in answers if answer[0] == "error"}
    states = {shown[1][0] for _, _, shown in answers if shown is not None}
    inside = [answer[1][0] for action, answer, _ in answers if action == "in flight" and answer[0] == "answer"]

    assert {"key_reused", "in_doubt", "expired", "not_replayable", "recorded_failure", "already_settled"} <= codes
    assert {"nothing_happened", "illegal_move", "TimeoutError"} <= codes
    assert states == {"settled", "released", "in_doubt", "expired"}
    assert ["error", "in_flight"] in [value[:2] for value in inside if isinstance(value, list)]


def test_a_gate_on_a_store_that_deviates_is_found_out() -> None:
    """
    The comparison of callers bites as well: a store that lets every put land is noticed.
    """
    honest, deviant = (
        [witnessed(Gate(made(), scope="test:deviant"), gate_trace(seed)) for seed in range(20)]
        for made in (MemoryStore, Overwriting)
    )

    assert [one for one in map(first_difference, honest, deviant) if one is not None] != []
