"""Every schedule of every scenario holds, and every planted fault is noticed by the invariant that should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward._core import record
from onceward._core.flow import BOUNDARIES, Put
from onceward._core.record import Claimant, Start, Write
from onceward.errors import NothingHappened
from onceward.stores.memory import MemoryStore
from onceward.testing.clock import StillEnvironment
from onceward.testing.explorer import (
    FAULTS,
    INVARIANTS,
    LIMITS,
    SCENARIOS,
    Actor,
    AdvanceTime,
    Behaviour,
    ExplorationReport,
    Scenario,
    calls,
    explore,
    main,
    make_scenario,
    scenario_terms,
)
from onceward.testing.explorer.faults import plant
from onceward.testing.explorer.world import BEGINNING, SECOND, SimulatedStore, World

BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, *LIMITS)}


def explored(scenario: Scenario, **options: Any) -> ExplorationReport:
    """The report on one scenario."""
    (report,) = explore([scenario], **options)
    return report


def tiny(**options: Any) -> Scenario:
    """Two callers of one blind operation, and nobody who comes after."""
    terms = scenario_terms("blind")
    play = calls(terms)
    return Scenario("tiny", "two callers", (Actor("A", play), Actor("B", play)), terms, **options)


@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_every_schedule_of_a_scenario_keeps_every_invariant(name: str) -> None:
    """
    Whoever goes first, whoever dies where, whatever is lost and whenever time passes: every invariant holds.
    """
    report = explored(BY_NAME[name])

    assert report.violations == {}
    assert not report.cut_off
    assert report.schedules > 1


@pytest.mark.parametrize("name", [scenario.name for scenario in LIMITS])
def test_a_stated_limit_is_real(name: str) -> None:
    """
    What is said not to be promised does happen, in a schedule that can be read: a limit is no excuse.
    """
    report = explored(BY_NAME[name])

    assert BY_NAME[name].limit in report.violations


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_planted_fault_is_caught_by_its_own_invariant(name: str) -> None:
    """
    Each mistake is noticed, and for the right reason: by the invariant that names what it breaks.
    """
    fault = FAULTS[name]
    reports = list(explore([BY_NAME[name] for name in fault.scenarios], fault=fault))

    assert fault.breaks in {name for report in reports for name in report.violations}


def test_every_invariant_can_break() -> None:
    """
    There is no invariant that nothing could break: each is broken by some planted fault.
    """
    broken = {
        name
        for fault in FAULTS.values()
        for report in explore([BY_NAME[name] for name in fault.scenarios], fault=fault)
        for name in report.violations
    }

    assert {invariant.name for invariant in INVARIANTS} - broken == set()


@pytest.mark.requirement("E22")
@pytest.mark.parametrize("guarantee", ["blind", "keyed", "probed", "repeatable"])
def test_looking_first_guards_nothing(guarantee: str) -> None:
    """
    Between a look and the claim that follows it, anything may happen, in every order: the swap alone decides.
    """
    assert explored(BY_NAME[f"{guarantee}-peeks"]).violations == {}


def test_somebody_dies_at_every_boundary() -> None:
    """
    There is a schedule with a crash before each boundary that flows have, and after each that changes anything.
    """
    found = {place for scenario in SCENARIOS if scenario.crashes for place in explored(scenario).crashes}
    changing = {"claim", "takeback", "renew", "call", "settle", "release", "doubt", "putback", "reconcile", "commit"}
    changing.add("mark")

    assert {f"{at}.before" for at in BOUNDARIES} - found == set()
    assert {f"{at}.after" for at in changing} - found == set()


class TestTheSearch:
    """What the search says of itself is so."""

    @pytest.mark.parametrize(
        "options",
        [{}, {"crashes": 1}, {"events": (AdvanceTime(11 * SECOND),)}, {"losses": 1}, {"interrupts": 1}],
        ids=["race", "crash", "lapse", "loss", "interrupt"],
    )
    def test_recognising_a_state_changes_no_count(self, options: dict[str, Any]) -> None:
        """
        Followed one by one, without recognising anything, there are as many schedules, states and ends.
        """
        quick, slow = explored(tiny(**options)), explored(tiny(**options), remember=False)

        assert slow.schedules == quick.schedules
        assert slow.states == quick.states
        assert sorted(slow.ends.values()) == sorted(quick.ends.values())
        assert slow.steps >= quick.steps

    def test_two_callers_that_never_meet_interleave_in_every_way(self) -> None:
        """
        Three steps each, claim, run and settle, under two keys: 6! / (3! 3!) = 20 schedules through 4 x 4 states.
        """
        terms = scenario_terms("blind")
        apart = (Actor("A", calls(terms, "one")), Actor("B", calls(terms, "two")))

        report = explored(Scenario("apart", "two keys", apart, terms))

        assert (report.schedules, report.states) == (20, 16)

    def test_a_lone_caller_may_die_on_either_side_of_each_step(self) -> None:
        """
        Before and after each of its three steps, or not at all: seven schedules for a lone caller.
        """
        terms = scenario_terms("blind")

        report = explored(Scenario("alone", "one caller", (Actor("A", calls(terms)),), terms, crashes=1))

        assert report.schedules == 7
        assert {f"{at}.{side}" for at in ("claim", "call", "settle") for side in ("before", "after")} == report.crashes

    def test_the_same_search_gives_the_same_report(self) -> None:
        """
        Nothing is left to chance: twice the same counts.
        """
        first, second = (explored(BY_NAME["keyed-lost"]) for _ in range(2))

        assert (first.schedules, first.states, first.steps) == (second.schedules, second.states, second.steps)

    def test_a_counterexample_is_a_shortest_one(self) -> None:
        """
        With claims that overwrite, two steps are enough to take a live lease away, and two are shown.
        """
        violation = explored(BY_NAME["blind"], fault=FAULTS["upsert-claim"]).violations["one-live-lease"]

        assert violation.schedule == ("A claim: landed", "B claim: landed")

    def test_a_crash_leaves_no_warning_behind(self, recwarn: pytest.WarningsRecorder) -> None:
        """
        Flows that are never resumed are collected in silence.
        """
        explored(tiny(crashes=2))

        assert list(recwarn) == []


class TestFaults:
    """A fault is planted for one search, and gone after it."""

    @pytest.mark.parametrize("name", sorted(fault.name for fault in FAULTS.values() if fault.replaces))
    def test_the_engine_is_itself_again_afterwards(self, name: str) -> None:
        """
        Also when the search is broken off.
        """
        fault = FAULTS[name]
        right = getattr(fault.module, fault.replaces)

        with pytest.raises(ZeroDivisionError), plant(fault):
            wrong = getattr(fault.module, fault.replaces)
            raise ZeroDivisionError

        assert wrong is not right
        assert right is getattr(fault.module, fault.replaces)

    def test_each_fault_names_things_that_exist(self) -> None:
        """
        Its invariant and its scenarios.
        """
        invariants = {invariant.name for invariant in INVARIANTS}

        assert {fault.breaks for fault in FAULTS.values()} - invariants == set()
        assert {name for fault in FAULTS.values() for name in fault.scenarios} - set(BY_NAME) == set()

    def test_every_invariant_says_what_it_promises(self) -> None:
        """
        In a sentence, under a name of its own.
        """
        names = [invariant.name for invariant in INVARIANTS]

        assert sorted(set(names)) == sorted(names)
        assert [invariant.name for invariant in INVARIANTS if not invariant.promise.endswith(".")] == []


class TestScenariosOfOnesOwn:
    """The explorer is for users' tests, too."""

    def test_the_example_of_the_package_works(self) -> None:
        """
        What the documentation shows: two callers, a pause and a crash.
        """
        terms = scenario_terms("keyed", keyed_for=3600)
        a, b = Actor("A", calls(terms)), Actor("B", calls(terms))
        mine = make_scenario(
            "mine", "two callers, and a long pause", terms, a, b, events=(AdvanceTime(60_000_000),), crashes=1
        )

        assert explored(mine).ok

    def test_a_function_that_lies_is_found_out(self) -> None:
        """
        A function that says "nothing happened" after it has acted is run again: no library can help that.
        """
        terms = scenario_terms("blind")
        lies = Behaviour("inside", NothingHappened)
        mine = make_scenario(
            "lies", "the first function lies", terms, Actor("A", calls(terms), lies), Actor("B", calls(terms))
        )

        assert "one-effect" in explored(mine).violations


class TestTheCommand:
    """`python -m onceward.testing explore`."""

    def test_a_run_in_which_everything_holds_exits_0(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        With a table, and a last line that counts.
        """
        code = main(["--scenario", "blind", "--scenario", "atomic-serial"])
        lines = capsys.readouterr().out.splitlines()

        assert code == 0
        assert lines[0].split() == ["scenario", "schedules", "states", "result"]
        assert [lines[1].split()[0], lines[1].split()[-1]] == ["blind", "ok"]
        assert "every invariant held" in lines[-1]

    @pytest.mark.parametrize("name", sorted(FAULTS))
    @pytest.mark.dose(8)
    def test_a_planted_fault_exits_1(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        """
        With the invariant that it breaks, and a numbered schedule.
        """
        code = main(["--fault", name])
        out = capsys.readouterr().out

        assert code == 1
        assert f"{FAULTS[name].breaks} was broken in " in out
        assert "   1. " in out
        assert f"{name} was caught" in out.splitlines()[-1]

    def test_json_is_for_programs(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        One object on standard output and nothing else.
        """
        code = main(["--fault", "upsert-claim", "--json"])
        report = json.loads(capsys.readouterr().out)

        assert code == 1
        assert (report["ok"], report["fault"]) == (False, "upsert-claim")
        assert "one-live-lease" in {broken["invariant"] for broken in report["scenarios"][0]["violations"]}

    def test_list_names_everything(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        Scenarios, limits, invariants and faults.
        """
        code = main(["--list"])
        words = capsys.readouterr().out.split()

        assert code == 0
        assert {*BY_NAME, *FAULTS, *(invariant.name for invariant in INVARIANTS)} - set(words) == set()

    def test_an_unknown_name_exits_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        And says which names there are.
        """
        with pytest.raises(SystemExit) as stop:
            main(["--fault", "no-such-fault"])

        assert stop.value.code == 2
        assert "upsert-claim" in capsys.readouterr().err

    def test_help_shows_examples(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        Each a line to copy.
        """
        with pytest.raises(SystemExit):
            main(["--help"])

        assert "explore --fault upsert-claim" in capsys.readouterr().out


# --- the simulated register is a register ---

KEYS = (b"a" * 32, b"b" * 32)


@st.composite
def acts(draw: st.DrawFn) -> tuple[str, Any]:
    """Something to do to a store."""
    kind = draw(st.sampled_from(["put", "put", "put", "pass", "purge", "extend"]))
    if kind == "put":
        moves = st.sampled_from(["claim", "settle", "release", "doubt", "renew", "reconcile"])
        return kind, (draw(st.sampled_from(KEYS)), draw(moves), draw(st.booleans()))
    return kind, draw(st.integers(0, 30)) * SECOND


def write_of(move: str, found: record.Record | None, identity: bytes, serial: int) -> Write | None:
    """The write of that move, if the record allows it."""
    claimant = Claimant(
        identity, "key", "test:x", "k", "", b"f" * 32, "blind", b"\1" + bytes(32), 10 * SECOND, SECOND, False
    )
    token, version = bytes([serial]) * 16, bytes([255 - serial]) * 16
    if move == "claim":
        return record.claim(claimant, Start(found), token=token, version=version)
    if found is None or found.state != "claimed":
        return None
    match move:
        case "settle":
            return record.settle(
                found, version=version, replay=20 * SECOND, forget=40 * SECOND, codec="json/1", result=b"1"
            )
        case "release":
            return record.release(found, version=version, forget=20 * SECOND)
        case "doubt":
            return record.leave_in_doubt(found, version=version)
        case "renew":
            return record.renew(found, version=version, lease=10 * SECOND)
    if found.lease_left is not None and found.lease_left > 0:
        return None
    return record.reconcile(found, happened=True, token=token, version=version, forget=40 * SECOND)


@settings(max_examples=150, deadline=None)
@given(st.lists(acts(), max_size=25))
def test_the_simulated_register_answers_as_the_memory_store_does(todo: list[tuple[str, Any]]) -> None:
    """
    Whatever is put, extended and purged, and however time passes: the same answers, the same records left.
    """
    environment = StillEnvironment(wall_us=BEGINNING)
    store, register, world = MemoryStore(environment=environment), SimulatedStore(), World()
    for serial, (kind, what) in enumerate(todo, start=1):
        if kind == "put":
            identity, move, stale = what
            found = store.load(identity)
            write = write_of(move, found, identity, serial)
            if write is None:
                continue
            expect = b"stale" if stale else None if found is None else found.version
            world, standing = register.put(world, Put(move, write, expect), 0)
            assert store.put(write, expect) == standing
        elif kind == "pass":
            environment.advance(what / SECOND)
            world = world._replace(now=world.now + what)
        elif kind == "extend":
            world, extended = world.extended(b"f" * 32, what, what)
            assert store.extend(b"f" * 32, what, what) == extended
        else:
            store.purge(100)
            world = world.purged()
    stands = {row.write.id: row.read(world.now)._replace(version=b"") for row in world.rows}

    loaded = [found for identity in KEYS if (found := store.load(identity)) is not None]

    assert {found.id: found._replace(version=b"") for found in loaded} == stands
