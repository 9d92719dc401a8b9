"""
What a simulation has to tell: tables, plots and findings. Data only; `page.py` and the command line show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many parts of how many are done."""


def ignore_progress(done: int, parts: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Figures in rows."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str | int | float, ...]]


@dataclass(frozen=True, slots=True)
class ReportPlot:
    """Lines over one axis: a name and its points each."""

    title: str
    x: str
    y: str
    lines: list[tuple[str, list[tuple[float, float]]]]
    marked: tuple[float, float] | None = None
    """A span of x that something happens in."""
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class SimulationFinding:
    """A sentence about the figures, and whether it holds."""

    sentence: str
    holds: bool


@dataclass(slots=True)
class SimulationReport:
    """Everything a simulation found out."""

    name: str
    about: str
    seed: int
    tables: list[ReportTable] = field(default_factory=list)
    plots: list[ReportPlot] = field(default_factory=list)
    findings: list[SimulationFinding] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether all findings hold."""
        return all(finding.holds for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"holds": self.holds}
