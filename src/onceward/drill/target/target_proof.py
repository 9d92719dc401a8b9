"""What must hold of the numbers of a target's drill: nothing doubles, nothing is lost, and the watch sees doubles."""

from __future__ import annotations

from typing import Any

from onceward.drill.proof import FORK, Claim, Numbers, ProofClaims, more_effects


def _nothing_doubles(numbers: Numbers) -> bool:
    one = numbers["effectsOfOne"]
    return bool(one > 0 and all(tried["effects"] <= one for tried in numbers["tries"]))


def _nothing_is_lost(numbers: Numbers) -> bool:
    one = numbers["effectsOfOne"]
    return all(tried["effects"] >= one or 1 in (tried["inDoubt"], tried["held"]) for tried in numbers["tries"])


def _killed_almost_everywhere(numbers: Numbers) -> bool:
    kills = [tried["killed"] for tried in numbers["tries"] if "killed" in tried]
    return bool(len(kills) == numbers["points"] > 0 and sum(kills) * 2 > len(kills))


def _table(numbers: Numbers) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    one = numbers["effectsOfOne"]
    rows: list[tuple[object, ...]] = [("once", one, "")]
    rows += [(tried["what"], tried["effects"], _word(tried, one)) for tried in numbers["tries"]]
    return ("SENT", "EFFECTS", ""), rows


def _word(tried: dict[str, Any], one: int) -> str:
    if tried["effects"] > one:
        return "DOUBLES"
    if tried["inDoubt"]:
        return "in doubt: a person decides"
    if tried["effects"] < one:
        return "held: its holder may still be alive, and its lease is running" if tried["held"] else "LOST"
    return "" if tried.get("killed", 1) else "not reached this time"


def _explain(numbers: Numbers) -> str:
    """The first try that went wrong, and the line that has the effect."""
    one, line = numbers["effectsOfOne"], numbers["line"]
    wrong = [
        f"{tried['what']}: {tried['effects']} effects" for tried in numbers["tries"] if _word(tried, one).isupper()
    ]
    return "; ".join([*wrong[:1], *([f"line {line['number']} doubles: {line['text']}"] if line else [])])


TARGET = ProofClaims(
    name="target",
    shows="your function, called again, several times at once, and after kill -9 at every line: one effect",
    without="one identity (two different calls)",
    claims=(
        Claim("no retry doubles the effect", _nothing_doubles),
        Claim("after a retry the effect is there, or the operation is in doubt or still held", _nothing_is_lost),
        Claim("it was killed at most of the chosen places", _killed_almost_everywhere),
    ),
    doubles=more_effects,
    needs=frozenset({FORK}),
    table=_table,
    explain=_explain,
)
