"""
What is tried: each guarantee, each kind of failure, each kind of race, as small declarative values.

Every scenario ends alike: when everybody is over and faults have stopped, a long time goes by, and `next` retries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onceward._core.errors import NothingHappened
from onceward._core.terms import Terms
from onceward.testing.explorer.actor_flows import (
    ActorFlow,
    calls,
    calls_inside,
    calls_joined,
    numbers,
    plans,
    reconciles,
    renews,
    scenario_terms,
)
from onceward.testing.explorer.actors import SUCCEEDS, Actor, Behaviour
from onceward.testing.explorer.scenario import AdvanceTime, Erase, Forget, Purge, Scenario
from onceward.testing.explorer.world import SECOND

LAPSE = AdvanceTime(11 * SECOND)
"""Past the lease."""

FAILS = Behaviour("inside")
"""Raises something that says nothing; the effect took place."""

_OUTSIDE = {"keyed": "keyed"}
_EFFECTS = {"repeatable": None}


def make_scenario(name: str, story: str, terms: Terms, *actors: Actor, **options: Any) -> Scenario:
    """A scenario, with the retry at its end."""
    last = Actor("next", actors[0].play, order=actors[0].order, after="*")
    options.setdefault("outside", _OUTSIDE.get(terms.guarantee, "plain"))
    options.setdefault("effects_max", _EFFECTS.get(terms.guarantee, 1))
    options.setdefault("zombies", terms.guarantee != "probed" or options["outside"] == "fenced")
    return Scenario(name, story, (*actors, last), terms, **options)


def two_callers(play: ActorFlow, first: Behaviour = SUCCEEDS) -> tuple[Actor, Actor]:
    """Two callers with the same request; the function of the first may misbehave."""
    return Actor("A", play, first), Actor("B", play)


def _races() -> list[Scenario]:
    """Two callers, the same key and the same request; time may pass and one may die, anywhere."""
    found = []
    for guarantee in ("blind", "keyed", "probed", "repeatable"):
        terms = scenario_terms(guarantee)
        two = two_callers(calls(terms))
        found.append(make_scenario(guarantee, "two callers race", terms, *two, events=(LAPSE,), crashes=1))
        story = "an answer of the store is lost"
        found.append(make_scenario(f"{guarantee}-lost", story, terms, *two, events=(LAPSE,), losses=1))
        story = "an interrupt strikes one of them"
        found.append(make_scenario(f"{guarantee}-interrupted", story, terms, *two, events=(LAPSE,), interrupts=1))
        if guarantee != "blind":
            late = two_callers(calls(terms), FAILS)
            story = "a holder is overtaken, then fails"
            found.append(make_scenario(f"{guarantee}-late-failure", story, terms, *late, events=(LAPSE,), crashes=1))
        peeking = two_callers(calls(terms, peeks=True))
        story = "two callers race, and look before they claim"
        found.append(make_scenario(f"{guarantee}-peeks", story, terms, *peeking, events=(LAPSE,), crashes=1))
    fenced = scenario_terms("probed")
    story = "two callers race; holders oversleep, and the resource refuses lower fences"
    two = two_callers(calls(fenced))
    found.append(make_scenario("probed-fenced", story, fenced, *two, events=(LAPSE,), crashes=1, outside="fenced"))
    for policy in ("refuse", "accept"):
        terms = scenario_terms("blind", in_flight=policy)
        story = f"two callers race; the second gets the answer {'no' if policy == 'refuse' else 'pending'}"
        found.append(
            make_scenario(f"blind-{policy}", story, terms, *two_callers(calls(terms)), events=(LAPSE,), crashes=1)
        )
    return found


def _storms() -> list[Scenario]:
    """Everything at once: a crash, a lost answer, an interrupt, and time going by."""
    found = []
    for guarantee in ("blind", "keyed", "probed"):
        terms = scenario_terms(guarantee)
        faults = {"events": (LAPSE,), "crashes": 1, "losses": 1, "interrupts": 1}
        two = (Actor("A", calls(terms)), Actor("B", calls(terms), after="A"))
        found.append(
            make_scenario(f"storm-{guarantee}", "one after the other, and all goes wrong", terms, *two, **faults)
        )
    return found


def _joined() -> list[Scenario]:
    """The same in the caller's own transaction."""
    terms = scenario_terms("atomic")
    everything = scenario_terms("atomic", remember="all")
    two = two_callers(calls_joined(terms))
    remembering = two_callers(calls_joined(everything), FAILS)
    failing = two_callers(calls_joined(terms), FAILS)
    story = "two transactions race"
    return [
        make_scenario("atomic", f"{story}; rows are locked", terms, *two, events=(LAPSE,), crashes=1, losses=1),
        make_scenario("atomic-serial", f"{story}; one at a time", terms, *two, crashes=1, losses=1, serial=True),
        make_scenario("atomic-fails", "the first one's function fails", terms, *failing, crashes=1, losses=1),
        make_scenario("atomic-interrupted", "an interrupt strikes one of them", terms, *two, crashes=1, interrupts=1),
        *_claimed_last(),
        make_scenario("atomic-remembers", "its failure is remembered", everything, *remembering, crashes=1),
    ]


def _claimed_last() -> list[Scenario]:
    """The key is written after the work, in the same statement that settles it."""
    terms = scenario_terms("atomic", claim="last")
    remembering = scenario_terms("atomic", claim="last", remember="all")
    first = scenario_terms("atomic")
    two = two_callers(calls_joined(terms))
    mixed = (Actor("A", calls_joined(terms)), Actor("B", calls_joined(first)))
    other = (Actor("A", calls_joined(terms)), Actor("B", calls_joined(terms), order="18"))
    failing, remembered = two_callers(calls_joined(terms), FAILS), two_callers(calls_joined(remembering), FAILS)
    story = "the key is written last"
    return [
        make_scenario("last", f"{story}; two transactions race", terms, *two, events=(LAPSE,), crashes=1, losses=1),
        make_scenario("last-serial", f"{story}; one at a time", terms, *two, crashes=1, losses=1, serial=True),
        make_scenario("last-three", f"{story}; three race", terms, *two, Actor("C", calls_joined(terms)), crashes=1),
        make_scenario("last-mixed", f"{story} by one, first by the other", terms, *mixed, crashes=1, losses=1),
        make_scenario("last-other", f"{story}; one key, different requests", terms, *other, crashes=1),
        make_scenario("last-fails", f"{story}; the first one's function fails", terms, *failing, crashes=1, losses=1),
        make_scenario("last-interrupted", f"{story}; an interrupt strikes", terms, *two, crashes=1, interrupts=1),
        make_scenario("last-remembers", f"{story}; a failure is remembered", remembering, *remembered, crashes=1),
    ]


def _inside() -> list[Scenario]:
    """Claimed by the gate, settled by the function in a transaction of its own."""
    terms = scenario_terms("atomic", settle="inside")
    play = calls_inside(terms)
    two = two_callers(play)
    renewed = (*two, Actor("renewer", renews(terms, "A"), background=True))
    story = "settled inside the function's transaction"
    found = [
        make_scenario("inside", f"{story}; two callers race", terms, *two, events=(LAPSE,), crashes=1),
        make_scenario("inside-lost", f"{story}; an answer is lost", terms, *two, events=(LAPSE,), losses=1),
        make_scenario(
            "inside-interrupted", f"{story}; an interrupt strikes", terms, *two, events=(LAPSE,), interrupts=1
        ),
        make_scenario("inside-renewal", f"{story}, while its lease is renewed", terms, *renewed, events=(LAPSE,)),
        make_scenario(
            "inside-other", f"{story}; different requests", terms, two[0], Actor("B", play, order="18"), crashes=1
        ),
    ]
    for name, body, what in (
        ("fails", FAILS, "the first one's function fails"),
        ("undoes", Behaviour(inside="undoes"), "the first one rolls back, and returns"),
        ("again", Behaviour(inside="again"), "the first one rolls back once, and does it again"),
        ("raises", Behaviour(inside="raises"), "the first one raises after its commit"),
    ):
        found.append(
            make_scenario(
                f"inside-{name}", f"{story}; {what}", terms, *two_callers(play, body), events=(LAPSE,), crashes=1
            )
        )
    return [*found, make_scenario("inside-forgets", _FORGOTTEN, terms, *two_callers(play, Behaviour(inside="forgets")))]


_FORGOTTEN = "a function commits its rows without having settled, and returns"


def _requests() -> list[Scenario]:
    """Two callers who ask for different things under one key."""
    found = []
    for guarantee in ("blind", "keyed", "repeatable"):
        play = calls(scenario_terms(guarantee))
        two = (Actor("A", play), Actor("B", play, order="18"))
        story = "two callers, one key, different requests"
        found.append(
            make_scenario(f"{guarantee}-other", story, scenario_terms(guarantee), *two, events=(LAPSE,), crashes=1)
        )
    terms = scenario_terms("keyed")
    changing = two_callers(calls(terms), Behaviour(mutates=True))
    story = "the function changes its own request while it runs"
    found.append(make_scenario("mutation", story, terms, *changing, events=(LAPSE,), crashes=1))
    return found


_FAILURES = {
    "unknown": (Behaviour("inside"), "raises something unknown"),
    "unknown-idle": (Behaviour("inside", happens=False), "raises something unknown, and had no effect"),
    "nothing": (Behaviour("before", NothingHappened), "says that nothing happened"),
    "before": (Behaviour("before", marked=True), "raises before its marked effect"),
    "inside": (Behaviour("inside", marked=True), "raises inside its marked effect"),
    "rejected": (
        Behaviour("inside", NothingHappened, marked=True, happens=False),
        "says inside its mark: nothing happened",
    ),
    "not-sent": (Behaviour("inside", ConnectionRefusedError, marked=True, happens=False), "is refused inside its mark"),
    "timeout": (Behaviour("inside", TimeoutError, marked=True), "hears nothing inside its mark, and had its effect"),
    "mail-refused": (Behaviour("inside", ConnectionRefusedError), "marks nothing, acts, and is refused something else"),
    "after": (Behaviour("after", marked=True), "raises after its marked effect"),
    "after-nothing": (
        Behaviour("after", NothingHappened, marked=True),
        "says after its marked effect: nothing happened",
    ),
}


def _failures() -> list[Scenario]:
    """The first function fails; what does the second caller hear?"""
    found = []
    for name, (body, what) in _FAILURES.items():
        terms = scenario_terms("blind")
        two = two_callers(calls(terms), body)
        story = f"the first function {what}"
        found.append(make_scenario(f"fails-{name}", story, terms, *two, events=(LAPSE,), crashes=1))
    for guarantee in ("keyed", "probed"):
        play = calls(scenario_terms(guarantee))
        rejected = Behaviour("before", NothingHappened)
        three = (Actor("A", play, FAILS), Actor("B", play, rejected, after="A"), Actor("C", play, after="B"))
        story = "unknown, then a rejection, then a retry: doubt is sticky"
        found.append(
            make_scenario(f"sticky-{guarantee}", story, scenario_terms(guarantee), *three, events=(LAPSE,), crashes=1)
        )
    play, blurred = calls(scenario_terms("probed")), Behaviour(probe_fails=True)
    three = (Actor("A", play, FAILS), Actor("B", play, blurred, after="A"), Actor("C", play, after="B"))
    story = "unknown, then a probe that cannot tell, then one that can"
    found.append(
        make_scenario("probe-fails", story, scenario_terms("probed"), *three, events=(LAPSE,), crashes=1, losses=1)
    )
    terms = scenario_terms("keyed", remember="all")
    play = calls(terms)
    three = (Actor("A", play), Actor("B", play, FAILS, after="A"), Actor("C", play, after="B"))
    story = "a crash, then a failure that could be remembered: doubt is sticky"
    found.append(make_scenario("sticky-remembered", story, terms, *three, events=(LAPSE,), crashes=1))
    terms = scenario_terms("blind", remember="all")
    found.append(
        make_scenario(
            "remembered", "a failure is remembered", terms, *two_callers(calls(terms), FAILS), crashes=1, losses=1
        )
    )
    terms = scenario_terms("blind")
    two = two_callers(calls(terms), Behaviour(keepable=False))
    found.append(make_scenario("unkept", "an answer that cannot be stored", terms, *two, events=(LAPSE,), crashes=1))
    return found


def _leases() -> list[Scenario]:
    """Renewals, releases and purges, against takeovers."""
    found = []
    terms = scenario_terms("repeatable")
    two = two_callers(calls(terms))
    renewer = Actor("renewer", renews(terms, "A"), background=True)
    story = "a renewal races with a takeover"
    found.append(make_scenario("renewal", story, terms, *two, renewer, events=(LAPSE,), crashes=1))
    terms = scenario_terms("blind")
    again = Actor("renewer", renews(terms, "A", 2), background=True)
    story = "the answer to a renewal is lost, and it is renewed again"
    found.append(make_scenario("renewal-lost", story, terms, Actor("A", calls(terms)), again, losses=1))
    terms = scenario_terms("repeatable")
    two = two_callers(calls(terms))
    story = "a claim waits in the store until little of its lease is left"
    found.append(make_scenario("slow-claim", story, terms, *two, events=(LAPSE,), losses=1, lag=7 * SECOND))
    terms, back = scenario_terms("blind"), AdvanceTime(-5 * SECOND)
    freed = two_callers(calls(terms), Behaviour("before", NothingHappened))
    story = "released and claimed again, the clock going back"
    found.append(make_scenario("release", story, terms, *freed, events=(back,), crashes=1))
    short = scenario_terms("blind", retain=20, tombstone=20)
    story = "forgotten, purged and claimed again, the clock going back"
    events = (AdvanceTime(41 * SECOND), Purge(), AdvanceTime(-41 * SECOND))
    found.append(make_scenario("purge", story, short, *two_callers(calls(short)), events=events, effects_max=3))
    return found


def _forgotten() -> list[Scenario]:
    """A store that loses what it was told, while the holder lives: its ending is put back, or it is known why not."""
    found = []
    for guarantee in ("blind", "keyed", "probed"):
        terms = scenario_terms(guarantee)
        two = (Actor("A", calls(terms)), Actor("B", calls(terms), after="A"))
        story = "the store forgets the claim of a running operation"
        found.append(make_scenario(f"forgotten-{guarantee}", story, terms, *two, events=(Forget(),), losses=1))
        events = (Forget(), LAPSE)
        found.append(
            make_scenario(f"forgotten-late-{guarantee}", f"{story}, and it ends late", terms, *two, events=events)
        )
    terms = scenario_terms("blind")
    fails = (Actor("A", calls(terms), FAILS), Actor("B", calls(terms), after="A"))
    story = "the store forgets the claim of an operation that fails"
    found.append(make_scenario("forgotten-fails", story, terms, *fails, events=(Forget(), LAPSE)))
    renewer = Actor("renewer", renews(terms, "A"), background=True)
    two = (Actor("A", calls(terms)), Actor("B", calls(terms), after="A"))
    story = "the store forgets, and a renewal races with the ending to put it back"
    found.append(make_scenario("forgotten-renewal", story, terms, *two, renewer, events=(Forget(),)))
    story = "an operation is erased while it runs"
    found.append(make_scenario("erased", story, terms, *two, renewer, events=(Erase(),), effects_max=2))
    story = "the store forgets an operation, which is then erased"
    found.append(
        make_scenario("erased-forgotten", story, terms, *two, events=(Forget(), Erase()), losses=1, effects_max=2)
    )
    terms = scenario_terms("repeatable")
    story = "the store forgets the claim of a running operation, and one of two callers dies"
    found.append(
        make_scenario("forgotten-crash", story, terms, *two_callers(calls(terms)), events=(Forget(),), crashes=1)
    )
    return found


def _dead_holders() -> list[Scenario]:
    """Claims that say who holds them: what the dead leave behind is not waited for, where that is safe."""
    found = []
    story = "callers say who they are, and see who is dead"
    for guarantee, crashes in (("blind", 2), ("keyed", 2), ("probed", 1), ("repeatable", 2)):
        terms = scenario_terms(guarantee)
        two = _named(*two_callers(calls(terms)))
        found.append(make_scenario(f"holder-{guarantee}", story, terms, *two, events=(LAPSE,), crashes=crashes))
        three = _named(*two_callers(calls(terms)), Actor("C", calls(terms)))
        found.append(
            make_scenario(f"holder-{guarantee}-crowd", f"{story}; two restarts at once", terms, *three, crashes=1)
        )
    terms = scenario_terms("keyed")
    found.append(make_scenario("holder-lost", f"{story}; an answer is lost", terms, *_named(*two_callers(calls(terms))),
                       crashes=1, losses=1))  # fmt: skip
    terms = scenario_terms("atomic", settle="inside")
    two = _named(*two_callers(calls_inside(terms)))
    found.append(make_scenario("holder-inside", f"{story}; settled inside", terms, *two, events=(LAPSE,), crashes=1))
    terms = scenario_terms("keyed")
    resumed = _named(Actor("A", plans(terms)), Actor("B", plans(terms), after="A"))
    found.append(make_scenario("holder-plan", f"{story}; a plan is resumed", terms, *resumed, crashes=1))
    terms = scenario_terms("keyed", takeover="lease")
    two = _named(*two_callers(calls(terms)))
    found.append(make_scenario("holder-lease", "takeover='lease': the dead are waited for", terms, *two, crashes=1))
    terms = scenario_terms("blind")
    operator = Actor("operator", reconciles(terms), background=True)
    people = (*_named(*two_callers(calls(terms))), operator)
    found.append(make_scenario("holder-reconcile", f"{story}; a person reconciles", terms, *people, crashes=1))
    return found


def _named(*actors: Actor) -> tuple[Actor, ...]:
    return tuple(replace(actor, named=True) for actor in actors)


def _windows() -> list[Scenario]:
    """A keyed downstream forgets keys. What is sent again must arrive before it does."""
    terms = scenario_terms("keyed", keyed_for=60)
    two = (Actor("A", calls(terms)), Actor("B", calls(terms), after="A"))
    found = []
    for name, first, second, story in (
        ("keyed-window", 59.9, 0.2, "sent again just before the downstream forgets the key"),
        ("keyed-window-stalled", 45, 16, "a caller stalls between finding a lapsed claim and taking it over"),
    ):
        events = (AdvanceTime(int(first * SECOND)), AdvanceTime(int(second * SECOND)))
        found.append(make_scenario(name, story, terms, *two, events=events, crashes=1, losses=1, zombies=False))
    return found


def _crowds() -> list[Scenario]:
    """Three callers, and puts that are sent together."""
    found = []
    for guarantee, crashes in (("blind", 1), ("keyed", 0)):
        terms = scenario_terms(guarantee)
        three = (*two_callers(calls(terms)), Actor("C", calls(terms)))
        story = "three callers race"
        found.append(make_scenario(f"three-{guarantee}", story, terms, *three, events=(LAPSE,), crashes=crashes))
    terms = scenario_terms("blind")
    three = (*two_callers(calls(terms)), Actor("C", calls(terms, "refund")))
    story = "puts are sent together"
    found.append(make_scenario("batch", story, terms, *three, crashes=1, together=True))
    terms = scenario_terms("repeatable")
    found.append(
        make_scenario(
            "batch-takeover", story, terms, *two_callers(calls(terms)), events=(LAPSE,), crashes=1, together=True
        )
    )
    return found


def _shapes() -> list[Scenario]:
    """Plans, sequences, and people who decide."""
    terms, keyed = scenario_terms("blind"), scenario_terms("keyed")
    operator = Actor("operator", reconciles(terms), background=True)
    story = "a person reconciles, racing with a late holder and a retry"
    both, one = numbers(keyed, 1, 2), numbers(keyed, 1)
    resumed = (Actor("A", plans(keyed)), Actor("B", plans(keyed), after="A"))
    failed = scenario_terms("keyed", remember="all")
    failing = (Actor("A", numbers(failed, 1), FAILS), Actor("B", numbers(failed, 1, 2)))
    numbered = (Actor("A", both), Actor("B", both, after="A"))
    return [
        make_scenario("reconcile", story, terms, *two_callers(calls(terms)), operator, events=(LAPSE,), crashes=1),
        make_scenario(
            "reconcile-unknown", story, terms, *two_callers(calls(terms), FAILS), operator, events=(LAPSE,), crashes=1
        ),
        make_scenario(
            "two-people",
            "two people look, one decides, a retry runs, and the other's decision comes late",
            terms,
            Actor("A", calls(terms), Behaviour("inside", happens=False)),
            Actor("B", calls(terms), FAILS, after="A"),
            *_people(bound=True),
            Actor("C", calls(terms), after="B"),
        ),
        make_scenario("plan", "a plan of two steps dies and is resumed", keyed, *resumed, events=(LAPSE,), crashes=1),
        make_scenario("plan-lost", "an answer of the store is lost, and it is resumed", keyed, *resumed, losses=1),
        make_scenario("plan-race", "two callers race through a plan of two steps", keyed, *two_callers(plans(keyed))),
        make_scenario("sequence", "two numbers, dying and resumed", keyed, *numbered, events=(LAPSE,), crashes=1),
        make_scenario("sequence-lost", "two numbers, an answer lost, and sent again", keyed, *numbered, losses=2),
        make_scenario(
            "sequence-race", "two callers send the same number", keyed, *two_callers(one), events=(LAPSE,), crashes=1
        ),
        make_scenario("sequence-fails", "number 1 fails, and the failure is remembered", failed, *failing),
        make_scenario(
            "sequence-gap", "one sends 1, the other 2", keyed, Actor("A", one), Actor("B", numbers(keyed, 2))
        ),
        make_scenario("sequence-next", "one sends 1 and 2, the other 1", keyed, Actor("A", both), Actor("B", one)),
    ]


def _people(*, bound: bool) -> tuple[Actor, ...]:
    play = reconciles(scenario_terms("blind"), bound=bound)
    return tuple(Actor(name, play, background=True) for name in ("operator", "colleague"))


def _limits() -> list[Scenario]:
    """What is not promised, shown: each of these must break."""
    probed, blind = scenario_terms("probed"), scenario_terms("blind")
    story = "a probe cannot see what a holder that overslept is about to do; only a fence can stop it"
    two = (Actor("A", calls(blind), Behaviour("inside", happens=False)), Actor("B", calls(blind), FAILS, after="A"))
    inside = scenario_terms("atomic", settle="inside")
    forgetful = two_callers(calls_inside(inside), Behaviour(inside="forgets"))
    return [
        make_scenario(
            "limit-inside", f"{_FORGOTTEN} too late", inside, *forgetful, events=(LAPSE,), limit="one-effect"
        ),
        make_scenario(
            "limit-probe", story, probed, *two_callers(calls(probed)), events=(LAPSE,), zombies=True, limit="one-effect"
        ),
        make_scenario(
            "limit-two-people",
            "two people look, one decides, a retry runs, and the other's decision (without a fence) comes late",
            blind,
            *two,
            *_people(bound=False),
            Actor("C", calls(blind), after="B"),
            limit="one-effect",
        ),
    ]


SCENARIOS: tuple[Scenario, ...] = (
    *_races(),
    *_storms(),
    *_joined(),
    *_inside(),
    *_requests(),
    *_failures(),
    *_leases(),
    *_forgotten(),
    *_dead_holders(),
    *_windows(),
    *_crowds(),
    *_shapes(),
)
"""Callers who meet, whose every order and every crash is tried."""
LIMITS: tuple[Scenario, ...] = tuple(_limits())
"""Scenarios of what is not promised: each of them must break."""
