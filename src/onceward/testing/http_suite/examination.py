"""
Runs every check that applies against a target, and returns what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from onceward._core.errors import ConfigurationError
from onceward.runtime.environment import REAL, Environment
from onceward.testing.http_suite.check_support import HttpCheck
from onceward.testing.http_suite.checks import CHECKS
from onceward.testing.http_suite.execution_detector import ExecutionDetector, calibrate
from onceward.testing.http_suite.expectations import Expectations
from onceward.testing.http_suite.raw_http import NoTargetResponse
from onceward.testing.http_suite.target import HttpTarget
from onceward.testing.http_suite.target_client import DoesNotHold, NotShown, TargetClient

JOBS_MAX = 16

SECRET_CHARACTERS_MIN = 4
"""Shorter header values are not redacted: they occur in many words by chance, and are nobody's secret."""

REASON_CHARACTERS_MAX = 300
"""Some reasons repeat a header of the target's, which may be long."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told which check begins, how many have begun, and how many there are."""


class CheckVerdict(StrEnum):
    """What a check came to."""

    HOLDS = "holds"
    BROKEN = "does not hold"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What one check came to, and why."""

    check: HttpCheck
    verdict: CheckVerdict
    reason: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What there is to say about a target."""

    address: str
    profile: str
    findings: tuple[CheckFinding, ...]

    @property
    def holds(self) -> bool:
        """Whether something was shown, and everything that was shown holds."""
        return self.count(CheckVerdict.BROKEN) == 0 and self.count(CheckVerdict.HOLDS) > 0

    def count(self, verdict: CheckVerdict) -> int:
        """How many checks came to this."""
        return sum(finding.verdict is verdict for finding in self.findings)

    def named(self, verdict: CheckVerdict) -> list[str]:
        """The names of the checks that came to this."""
        return [finding.check.name for finding in self.findings if finding.verdict is verdict]

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "target": self.address,
            "profile": self.profile,
            "holds": self.holds,
            "counts": {
                "holds": self.count(CheckVerdict.HOLDS),
                "doesNotHold": self.count(CheckVerdict.BROKEN),
                "notShown": self.count(CheckVerdict.NOT_SHOWN),
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


def select_checks(expected: Expectations, only: Collection[str] = (), skip: Collection[str] = ()) -> list[HttpCheck]:
    """The checks to make under a profile."""
    applying = [check for check in CHECKS if check.applies(expected)]
    for name in (*only, *skip):
        if name not in (known := [check.name for check in CHECKS]):
            raise ConfigurationError(f"there is no check {name!r}; the checks are {', '.join(known)}")
    found = [check for check in applying if (not only or check.name in only) and check.name not in skip]
    if not found:
        raise ConfigurationError(f"no check is left to run under the profile {expected.profile}")
    return found


def examine(
    target: HttpTarget,
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
    checks = select_checks(target.expected, only, skip)
    if jobs > 1 and target.counter is not None:
        raise ConfigurationError("a counter cannot tell apart checks that run in parallel; leave out --jobs")
    detector = calibrate(TargetClient(target, environment))
    begun = iter(range(1, len(checks) + 1))

    def judge(check: HttpCheck) -> CheckFinding:
        progress(check.name, next(begun), len(checks))
        return _found(check, detector)

    workers = ThreadPoolExecutor(max_workers=jobs)
    try:
        findings = tuple(workers.map(judge, checks))
    finally:
        # An interrupt, or a target that has gone: no further check begins.
        workers.shutdown(cancel_futures=True)
    return Examination(f"{target.origin}{target.request.path}", target.expected.profile, findings)


def _found(check: HttpCheck, detector: ExecutionDetector) -> CheckFinding:
    try:
        check.run(detector)
    except DoesNotHold as error:
        verdict, reason = CheckVerdict.BROKEN, str(error)
    except NoTargetResponse as error:
        verdict, reason = CheckVerdict.BROKEN, str(error)
    except NotShown as error:
        verdict, reason = CheckVerdict.NOT_SHOWN, str(error)
    else:
        verdict, reason = CheckVerdict.HOLDS, ""
    return CheckFinding(check, verdict, _without_secrets(reason, detector.client.target))


def _without_secrets(reason: str, target: HttpTarget) -> str:
    # A server may repeat a header in what it says, and what it says is printed.
    for _, value in (*target.headers, *(target.other_headers or ())):
        for secret in (value, value.rpartition(" ")[2]):
            if len(secret) >= SECRET_CHARACTERS_MIN:
                reason = reason.replace(secret, "…")
    return reason if len(reason) <= REASON_CHARACTERS_MAX else f"{reason[:REASON_CHARACTERS_MAX]}…"
