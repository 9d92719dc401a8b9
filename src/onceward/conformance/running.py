"""
A whole examination: get acquainted with the target, make every check that applies, and say what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from onceward._core.errors import ConfigurationError
from onceward.conformance.checking import Check
from onceward.conformance.checks import CHECKS
from onceward.conformance.expectations import Expectations
from onceward.conformance.talking import Broken, NotShown, Talk
from onceward.conformance.target import Target
from onceward.conformance.wire import NoAnswer
from onceward.conformance.witness import Witness, acquaint
from onceward.environment import REAL, Environment

JOBS_MAX = 16

SECRET_CHARACTERS_MIN = 4
"""A header's value that is shorter stands in many words by chance; nobody's secret is."""

REASON_CHARACTERS_MAX = 300
"""Some reasons repeat a header of the target's, which may be long."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told which check begins, how many have begun, and how many there are."""


class Verdict(StrEnum):
    """What a check came to."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check came to, and why."""

    check: Check
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What there is to say about a target."""

    address: str
    profile: str
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether something was shown, and everything that was shown holds."""
        return self.count(Verdict.BROKEN) == 0 and self.count(Verdict.HOLDS) > 0

    def count(self, verdict: Verdict) -> int:
        """How many checks came to this."""
        return sum(finding.verdict is verdict for finding in self.findings)

    def named(self, verdict: Verdict) -> list[str]:
        """The names of the checks that came to this."""
        return [finding.check.name for finding in self.findings if finding.verdict is verdict]

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "target": self.address,
            "profile": self.profile,
            "holds": self.holds,
            "counts": {
                "holds": self.count(Verdict.HOLDS),
                "doesNotHold": self.count(Verdict.BROKEN),
                "notShown": self.count(Verdict.NOT_SHOWN),
            },
            "checks": [
                {
                    "name": finding.check.name,
                    "verdict": finding.verdict.value,
                    "reason": finding.reason,
                    "sends": finding.check.sends,
                    "must": finding.check.must,
                }
                for finding in self.findings
            ],
        }


def chosen(expected: Expectations, only: Collection[str] = (), skip: Collection[str] = ()) -> list[Check]:
    """The checks to make under a profile."""
    applying = [check for check in CHECKS if check.applies(expected)]
    for name in (*only, *skip):
        if name not in (known := [check.name for check in CHECKS]):
            raise ConfigurationError(f"no check is called {name!r}; there are {', '.join(known)}")
    found = [check for check in applying if (not only or check.name in only) and check.name not in skip]
    if not found:
        raise ConfigurationError(f"no check is left to make under the profile {expected.profile}")
    return found


def examine(
    target: Target,
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    jobs: int = 1,
    progress: Progress = lambda name, begun, checks: None,
    environment: Environment = REAL,
) -> Examination:
    """
    Make the checks, and say what each came to.

    Raises `TargetUnreachable` if the target does not answer, and `ConfigurationError` if what is described cannot work.
    """
    checks = chosen(target.expected, only, skip)
    if jobs > 1 and target.counter is not None:
        raise ConfigurationError("checks that run side by side cannot be told apart by a counter; leave out --jobs")
    witness = acquaint(Talk(target, environment))
    begun = iter(range(1, len(checks) + 1))

    def judge(check: Check) -> Finding:
        progress(check.name, next(begun), len(checks))
        return _found(check, witness)

    workers = ThreadPoolExecutor(max_workers=jobs)
    try:
        findings = tuple(workers.map(judge, checks))
    finally:
        # An interrupt, or a target that has gone: no further check begins.
        workers.shutdown(cancel_futures=True)
    return Examination(f"{target.origin}{target.request.path}", target.expected.profile, findings)


def _found(check: Check, witness: Witness) -> Finding:
    try:
        check.run(witness)
    except Broken as error:
        verdict, reason = Verdict.BROKEN, str(error)
    except NoAnswer as error:
        verdict, reason = Verdict.BROKEN, str(error)
    except NotShown as error:
        verdict, reason = Verdict.NOT_SHOWN, str(error)
    else:
        verdict, reason = Verdict.HOLDS, ""
    return Finding(check, verdict, _without_secrets(reason, witness.talk.target))


def _without_secrets(reason: str, target: Target) -> str:
    # A server may repeat a header in what it says, and what it says is printed.
    for _, value in (*target.headers, *(target.other_headers or ())):
        for secret in (value, value.rpartition(" ")[2]):
            if len(secret) >= SECRET_CHARACTERS_MIN:
                reason = reason.replace(secret, "…")
    return reason if len(reason) <= REASON_CHARACTERS_MAX else f"{reason[:REASON_CHARACTERS_MAX]}…"
