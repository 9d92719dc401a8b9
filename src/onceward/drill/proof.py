"""
`Proof`: what is run, what must hold of its numbers, and how the same run goes wrong without the guard.

A proof that cannot fail proves nothing. So each is run twice: with its guard, where every claim must hold, and with the
guard taken away, where the effect must double. If it does not, the proof is void, whatever the first run showed. The
judgement is made from the numbers alone, so that a bundle can be judged again by somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from onceward.drill.bench import Bench

Numbers: TypeAlias = Mapping[str, Any]
"""What a run came to: whole numbers, and lists of them, by name."""

PROCESSES, FORK = "processes", "fork"
"""What a proof may need: a store that other processes can open; a system on which processes can be forked."""


class Claim(NamedTuple):
    """A sentence about the numbers of a run, and whether it is true of them."""

    says: str
    holds: Callable[[Numbers], bool]


def one_effect_each(numbers: Numbers) -> bool:
    """As many effects as operations."""
    return bool(numbers["effects"] == numbers["operations"] > 0)


def more_effects(numbers: Numbers) -> bool:
    """More effects than operations: something happened twice."""
    return bool(numbers["effects"] > numbers["operations"] > 0)


ONE_EFFECT = Claim("each operation has one effect", one_effect_each)


class ProofJudgement(NamedTuple):
    """What the numbers of a proof come to."""

    holds: bool
    why: tuple[str, ...] = ()
    """Every claim that does not hold, the first with the numbers; empty if the proof holds."""


def scalars(numbers: Numbers) -> str:
    """The numbers in one line, those that are neither objects nor lists of them."""
    shown = [f"{name} {value}" for name, value in numbers.items() if "{" not in str(value)]
    return ", ".join(shown)[:300] or "no numbers"


@dataclass(frozen=True, kw_only=True)
class ProofClaims:
    """What is claimed of the numbers of a proof, by whomever they were counted, and how its control goes wrong."""

    name: str
    shows: str
    """What it shows, in one sentence."""
    without: str
    """The guard that the control does without."""
    claims: tuple[Claim, ...] = (ONE_EFFECT,)
    """What must hold of the numbers of the guarded run."""
    doubles: Callable[[Numbers], bool] = more_effects
    """Whether the numbers of the control show the harm that the guard prevents."""
    needs: frozenset[str] = frozenset()
    table: Callable[[Numbers], tuple[tuple[str, ...], list[tuple[object, ...]]]] | None = None
    """The numbers as a table (headings and rows), if a person wants to see them."""

    explain: Callable[[Numbers], str] = scalars
    """What to say of the numbers if a claim about them does not hold."""

    def judge(self, guarded: Numbers, control: Numbers) -> ProofJudgement:
        """What the numbers of both runs come to."""
        why = [f"does not hold: {claim.says}" for claim in self.claims if not _true(claim.holds, guarded)]
        if why:
            why[0] += f" ({_explained(self.explain, guarded)})"
        if not _true(self.doubles, control):
            why.append(
                f"void: without {self.without} nothing doubled ({scalars(control)}), so the proof could not have failed"
            )
        return ProofJudgement(not why, tuple(why))


@dataclass(frozen=True, kw_only=True)
class Proof(ProofClaims):
    """One proof: its claims, and a function that counts the numbers."""

    run: Callable[[Bench], Numbers]
    """Runs it, with the guard or (`bench.guarded`) without."""


def _true(holds: Callable[[Numbers], bool], numbers: Numbers) -> bool:
    """Whether it holds. Numbers that are missing, or are none, prove nothing."""
    try:
        return holds(numbers) is True
    except (LookupError, TypeError, ValueError):
        return False


def _explained(explain: Callable[[Numbers], str], numbers: Numbers) -> str:
    try:
        return explain(numbers)
    except (LookupError, TypeError, ValueError):
        return scalars(numbers)
