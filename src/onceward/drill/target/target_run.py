"""
The drill of a function: which calls are made, in which order, and what the watch counted after each of them.

    once            how many effects one call has
    again           the same call a second time
    five at once    the same call, in five processes
    traced          to find its lines, and the failpoints of its gate
    killed at ...   for every place: a call that is killed there, and two retries
    two calls       with other arguments: the control, which must have twice the effects
"""

from __future__ import annotations

import linecache
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.drill.bundle import sealed
from onceward.drill.drill_run import ending_politely, heading
from onceward.drill.nursery import ChildEnd, DrillBroken, Nursery, NurseryKeeper
from onceward.drill.target.target_child import EVENTS_MAX
from onceward.drill.target.target_proof import TARGET
from onceward.drill.target.watches import EffectWatch
from onceward.runtime.environment import REAL, SeededRandom
from onceward.runtime.progress import Progress, silent

FRESH = "{n}"
"""In the arguments: a fresh number for each operation."""
POINTS = 40
TOGETHER = 5
RETRIES = 2
SECONDS = 30.0
IMPORT_SECONDS = 120.0
_DOUBT = ("in_doubt", "outcome_unknown")


class TargetOrder(NamedTuple):
    """Which function is drilled, and how."""

    target: str
    arguments: Any
    """A list, or an object by name; `{n}` in its texts becomes a fresh number for each operation."""
    watch: EffectWatch
    seconds: float = SECONDS
    """That one call may take."""
    points: int = POINTS
    """Places to be killed at, at most."""
    seed: int = 1

    @property
    def runs_max(self) -> int:
        """How often the function may be run."""
        return 2 + TOGETHER + 3 + self.points * (1 + RETRIES) + EVENTS_MAX.bit_length()


class KillPlace(NamedTuple):
    """A place to be killed at."""

    what: str
    task: dict[str, Any]


def run_target(order: TargetOrder, progress: Progress = silent) -> dict[str, Any]:
    """Drill the function; the sealed document. `ConfigurationError` if it cannot be drilled, and was not run."""
    if not hasattr(os, "fork"):
        raise ConfigurationError(
            "drilling a function needs a system where processes can be forked and killed: Linux or macOS"
        )
    with ending_politely(), closing(NurseryKeeper()) as nurseries:
        return drill_target(order, nurseries.get(), progress)


def drill_target(order: TargetOrder, nursery: Nursery, progress: Progress = silent) -> dict[str, Any]:
    """The same, with processes from this nursery."""
    began = REAL.monotonic()
    order.watch.count()
    drill = _TargetDrill(order, nursery, progress)
    looked = drill.look()
    entry: dict[str, Any] = {"name": TARGET.name, "shows": TARGET.shows, "without": TARGET.without, "broke": None}
    entry |= {"where": [f"{order.target}, watched: {order.watch.about}"], "guarded": {}, "control": {}}
    try:
        entry["guarded"], entry["control"] = drill.run(looked)
    except (DrillBroken, ConfigurationError) as error:
        entry["broke"] = str(error)
    entry["milliseconds"] = round((REAL.monotonic() - began) * 1000)
    document = heading("its own", order.seed) | {"guard": "on", "chosen": [TARGET.name], "leftOut": {}}
    document |= {"milliseconds": entry["milliseconds"], "proofs": [entry]}
    return sealed(document, {TARGET.name: TARGET})


class _TargetDrill:
    """One drill of one function."""

    def __init__(self, order: TargetOrder, nursery: Nursery, progress: Progress) -> None:
        self._order, self._nursery, self._progress = order, nursery, progress
        self._random = SeededRandom(order.seed)
        self._fresh = int.from_bytes(REAL.random(5), "big")
        self._runs = self._orphans = 0
        self._file = ""

    def look(self) -> dict[str, Any]:
        """What the target is; refused if it cannot be drilled."""
        [end] = self._nursery.run([self._task("target_look", self._arguments()) | {"limit": IMPORT_SECONDS}])
        report = end.report
        if end.late:
            raise ConfigurationError(f"{self._order.target}: importing it took more than {IMPORT_SECONDS:g} s")
        if report is None or "broke" in report:
            shown = f" It printed: {end.output[-300:]!r}" if end.output else ""
            raise ConfigurationError(
                f"{self._order.target}: importing it ended the process (exit code {end.code}).{shown}"
            )
        if "unfit" in report:
            raise ConfigurationError(f"{self._order.target}: {report['unfit']}")
        self._file = report["file"]
        return report

    def run(self, looked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Every call; the numbers of the drill and of its control."""
        first = self._arguments()
        one, end = self._sent([first])
        self._check_first(one, end)
        again, _ = self._sent([first])
        tries = [self._tried("again", one + again)]
        identities = FRESH in str(self._order.arguments)
        if not identities and again == 0:
            raise DrillBroken(
                "its second run had no effect, which is right. To kill it at every place, the drill needs a new "
                "operation each time: put {n} into a string of --args, and each operation gets a new number there"
            )
        together, _ = self._sent([self._arguments()] * TOGETHER, together=True)
        tries.append(self._tried(f"{TOGETHER} at once", together))
        # Not from the first call, which may have made a store's tables: no other one goes there.
        _, noted = self._sent([self._arguments()], notes=True)
        report = noted.report or {}
        if "lines" not in report:
            raise DrillBroken(f"its lines could not be found: when traced, it ended with exit code {noted.code}")
        places = self._places(report)
        for number, place in enumerate(places):
            self._progress(number / len(places), f"{number + 1} of {len(places)}: {place.what}")
            tries.append(self._killed(place))
        control = {"operations": one, "effects": one + again}
        if identities:
            two = [self._sent([self._arguments()])[0] for _ in range(2)]
            control = {"operations": one, "effects": sum(two)}
        doubles = any(tried["effects"] > one for tried in tries)
        line = self._guilty(report["lines"]) if doubles else None
        numbers = {"effectsOfOne": one, "points": len(places), "runs": self._runs, "gated": int(looked["gated"]),
                   "orphans": self._orphans}  # fmt: skip
        sums = {"operations": one * len(tries), "effects": sum(tried["effects"] for tried in tries)}
        return {**sums, **numbers, "tries": tries, "line": line}, control

    def _check_first(self, effects: int, end: ChildEnd) -> None:
        report = end.report or {}
        if end.late:
            printed = f", having printed {end.printed:,} bytes" if end.printed else ""
            raise DrillBroken(
                f"its first run did not end within {self._order.seconds:g} s (--limit){printed}; it was killed"
            )
        if end.report is None:
            raise DrillBroken(f"its first run ended the process (exit code {end.code}) before it returned")
        if report.get("live") or report.get("broke"):
            raise DrillBroken(report.get("raised") or report["broke"])
        if report["raised"]:
            raise DrillBroken(f"its first run raised {report['raised']}")
        if effects <= 0:
            raise DrillBroken(
                f"its first run had no effect that the watch could see ({self._order.watch.about}); use --watch to "
                "name what the function changes"
            )

    def _killed(self, place: KillPlace) -> dict[str, Any]:
        """A call that is killed at a place, and two retries."""
        arguments = self._arguments()
        before, end = self._sent([arguments], **place.task)
        tried = self._tried(place.what, before) | {"killed": int(end.was_killed), "effectsAtKill": before}
        for _ in range(RETRIES):
            more, again = self._sent([arguments])
            tried["effects"] += more
            code = (again.report or {}).get("code")
            tried["inDoubt"] |= int(code in _DOUBT)
            tried["held"] |= int(code == "in_flight")
        return tried

    def _tried(self, what: str, effects: int) -> dict[str, Any]:
        return {"what": what, "effects": effects, "inDoubt": 0, "held": 0}

    def _sent(self, calls: Sequence[Any], **more: Any) -> tuple[int, ChildEnd]:
        """Call the function, once for each of these arguments and all at once; the effects, and how the last ended."""
        before = self._order.watch.count()
        ends = self._nursery.run([self._task("target_call", one, **more) for one in calls])
        self._runs += len(calls)
        self._orphans += self._nursery.orphans
        return self._order.watch.count() - before, ends[-1]

    def _task(self, do: str, arguments: Any, **more: Any) -> dict[str, Any]:
        by_name = isinstance(arguments, dict)
        both = {"args": [] if by_name else arguments, "kwargs": arguments if by_name else {}}
        return {"do": do, "target": self._order.target, "limit": self._order.seconds, **both, **more}

    def _arguments(self) -> Any:
        """The arguments of a new operation."""
        self._fresh += 1
        return _filled(self._order.arguments, str(self._fresh))

    def _places(self, report: dict[str, Any]) -> list[KillPlace]:
        """Where to be killed: the gate's failpoints, and the first time that each line is reached."""
        seen: Counter[str] = Counter()
        places = []
        for name in report["hits"]:
            nth = f" #{seen[name] + 1}" if seen[name] else ""
            places.append(KillPlace(f"killed at {name}{nth}", {"failpoint": name, "skip": seen[name]}))
            seen[name] += 1
        reached: set[int] = set()
        for index, line in enumerate(report["lines"]):
            if line not in reached:
                reached.add(line)
                where = f"before line {line}" if line > 0 else f"after line {-line}, as it returns"
                places.append(KillPlace(f"killed {where}", {"kill_at": index}))
        if len(places) > self._order.points:
            chosen = sorted(self._random.sample(range(len(places)), self._order.points))
            places = [places[index] for index in chosen]
        return places

    def _guilty(self, lines: list[int]) -> dict[str, Any] | None:
        """The line that has the effect: killed before it there is none yet, killed after it there is. By halves."""

        def is_there(index: int) -> bool:
            return self._sent([self._arguments()], kill_at=index)[0] > 0

        first = bisect_left(range(len(lines)), True, key=is_there)
        if not 0 < first <= len(lines):
            return None
        number = abs(lines[first - 1])
        return {"number": number, "text": linecache.getline(self._file, number).strip()[:120]}


def _filled(value: Any, number: str) -> Any:
    match value:
        case str():
            return value.replace(FRESH, number)
        case list():
            return [_filled(one, number) for one in value]
        case dict():
            return {name: _filled(one, number) for name, one in value.items()}
    return value
