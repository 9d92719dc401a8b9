"""
`explore`: the explorer as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from onceward.testing.explorer.faults import PlantedFault, plant
from onceward.testing.explorer.scenario import Scenario
from onceward.testing.explorer.scenarios import SCENARIOS
from onceward.testing.explorer.search import ExplorationReport, Search


def explore(
    scenarios: Iterable[Scenario] = SCENARIOS,
    *,
    fault: PlantedFault | None = None,
    remember: bool = True,
    progress: Callable[[Scenario, int], None] | None = None,
) -> Iterator[ExplorationReport]:
    """
    Try every schedule of each scenario, and report on each.

    `fault` (one of `FAULTS`) is planted while a scenario is tried. With `remember=False` no state is recognised again,
    so that every schedule is followed by itself: exact, and only for tiny scenarios. `progress` is told, now and then,
    how many states of a scenario have been gone through.
    """
    for scenario in scenarios:
        tell = None if progress is None else _telling(progress, scenario)
        with plant(fault) as register:
            report = Search(scenario, register, tell).run(remember=remember)
        yield report


def _telling(progress: Callable[[Scenario, int], None], scenario: Scenario) -> Callable[[int], None]:
    return lambda states: progress(scenario, states)
