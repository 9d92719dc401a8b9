"""
The explorer: every interleaving of two callers, of three, and every crash point of the whole flow, in seconds.

    python -m onceward.testing explore                          everything holds: exit 0
    python -m onceward.testing explore --fault upsert-claim     with a planted fault: exit 1, and the schedule

The engine's flows stop at every effect. So a race is a choice of whose flow continues, and a crash is a flow that never
does: no threads, no sleeps, no luck. The search tries every choice in a simulated world (`world`), judges every change
by the invariants (`invariants`), and prints a shortest schedule for each that breaks.

From a test of your own, with the given scenarios or with your own:

    from onceward.testing.explorer import Actor, AdvanceTime, calls, explore, make_scenario, scenario_terms

    terms = scenario_terms("keyed", keyed_for=3600)
    a, b = Actor("A", calls(terms)), Actor("B", calls(terms))
    pause = AdvanceTime(60_000_000)
    mine = make_scenario("mine", "two callers, and a long pause", terms, a, b, events=(pause,), crashes=1)
    for report in explore([mine]):
        assert report.ok, report.violations
"""

from onceward.testing.explorer.actor_flows import calls, scenario_terms
from onceward.testing.explorer.actors import Actor, Behaviour, Interrupted, Unknown
from onceward.testing.explorer.command import main
from onceward.testing.explorer.exploration import explore
from onceward.testing.explorer.faults import FAULTS, PlantedFault
from onceward.testing.explorer.invariants import INVARIANTS, Invariant
from onceward.testing.explorer.scenario import AdvanceTime, Erase, Forget, Purge, Scenario
from onceward.testing.explorer.scenarios import LIMITS, SCENARIOS, make_scenario
from onceward.testing.explorer.search import ExplorationReport, Violation

__all__ = [
    "FAULTS",
    "INVARIANTS",
    "LIMITS",
    "SCENARIOS",
    "Actor",
    "AdvanceTime",
    "Behaviour",
    "Erase",
    "ExplorationReport",
    "Forget",
    "Interrupted",
    "Invariant",
    "PlantedFault",
    "Purge",
    "Scenario",
    "Unknown",
    "Violation",
    "calls",
    "explore",
    "main",
    "make_scenario",
    "scenario_terms",
]
